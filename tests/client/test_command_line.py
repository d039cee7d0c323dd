"""What holds for every command: help whose examples parse, JSON for programs, exit codes, colours that switch off."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from rowwise.cli import app
from rowwise.cli.exit_codes import ExitCode, exit_code_of
from rowwise.errors import (
    BadAnswer,
    BuildFailed,
    ConnectionFailed,
    DeadlineExceeded,
    NotConnected,
    NotFound,
    Overloaded,
    TimedOut,
    Unauthorized,
)
from scripts.command_reference import command_lines, exit_code_lines
from tests.command_lines import parse
from tests.source_files import ROOT

#: What they print is for programs as it is.
JSON_ALWAYS = {"predict", "shadow"}
#: They run until they are told to stop, or are shows.
NO_RESULT = {"serve", "demo"}
_COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38)[;m]")


def leaves(command: Any, *names: str) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield " ".join(names), command
        return
    for name, inner in command.commands.items():
        yield from leaves(inner, *names, name)


GROUP = typer.main.get_command(app)
COMMANDS = dict(leaves(GROUP))


def examples(help_text: str) -> list[str]:
    """The command lines after "Examples", as far as this command reads them: neither pipes nor files."""
    text = re.split(r"\[bold\](?:Examples?|A first session)\[/bold\]", help_text, maxsplit=1)[1]
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("rowwise ")]
    return [re.split(r" \| | > |\s{2,}\(", line)[0] for line in lines]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_examples_of_it_that_parse(name: str) -> None:
    found = examples(COMMANDS[name].help)

    assert any(line.startswith(f"rowwise {name}") for line in found)
    for line in found:
        parse(GROUP, shlex.split(line)[1:])


def test_an_example_that_does_not_parse_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(GROUP, shlex.split("models --no-such"))


def test_the_first_session_parses() -> None:
    (_, register, *_) = session = examples(GROUP.help or "")
    assert "register" in register
    for line in session:
        parse(GROUP, shlex.split(line)[1:])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_sentence_and_says_what_its_options_are(name: str) -> None:
    command = COMMANDS[name]
    assert command.help.strip().splitlines()[0].rstrip(":")
    silent = [each.name for each in command.params if not getattr(each, "help", None)]
    assert silent == []


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - JSON_ALWAYS - NO_RESULT))
def test_what_prints_text_for_people_prints_json_for_programs(name: str) -> None:
    assert "--json" in [flag for parameter in COMMANDS[name].params for flag in parameter.opts]


def test_the_help_tells_every_exit_code() -> None:
    answer = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(app, ["--help"])
    told = " ".join(answer.output.split())
    for code in ExitCode:
        assert f"{code.value} {code.meaning}" in told


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotConnected("no"), 3),
        (ConnectionFailed("broke"), 1),
        (Unauthorized(403, "no"), 4),
        (Overloaded(503, "later"), 5),
        (DeadlineExceeded(504, "late"), 5),
        (TimedOut("late"), 5),
        (NotFound(404, "no"), 1),
        (BuildFailed("m", 1, "why"), 1),
        (BadAnswer("what"), 1),
    ],
)
def test_scripts_can_tell_kinds_of_failure_apart(error: Any, code: int) -> None:
    assert exit_code_of(error) == code


def test_a_server_that_is_not_there_ends_with_3_and_says_how_to_go_on() -> None:
    answer = CliRunner().invoke(app, ["models", "--url", "http://127.0.0.1:1"])
    assert (answer.exit_code, answer.stdout) == (3, "")
    assert "is the server running there?" in answer.stderr


def rowwise(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "TERM"}}
    return subprocess.run(
        [sys.executable, "-m", "rowwise", *arguments],
        cwd=ROOT,
        env={**clean, "TERM": "xterm-256color", **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_colours_are_for_terminals_and_can_be_switched_off() -> None:
    """A terminal is what FORCE_COLOR makes of a pipe."""
    assert _COLOUR.search(rowwise("models", "--help", FORCE_COLOR="1").stdout)
    assert not _COLOUR.search(rowwise("models", "--help").stdout)
    assert not _COLOUR.search(rowwise("models", "--help", "--no-color", FORCE_COLOR="1").stdout)
    assert not _COLOUR.search(rowwise("models", "--help", FORCE_COLOR="1", NO_COLOR="1").stdout)
    wrong = rowwise("--no-color", "models", "--no-such", FORCE_COLOR="1")
    assert (wrong.returncode, _COLOUR.search(wrong.stderr)) == (2, None)


def test_what_was_activated_or_registered_is_told_to_programs(url: str, tmp_path: Any) -> None:
    (tmp_path / "model.zip").write_bytes(b"packed")
    runner = CliRunner()
    activated = runner.invoke(app, ["activate", "double", "2", "--json", "--url", url])
    assert json.loads(activated.stdout) == {"model": "double", "version": 2, "active": True}
    registered = runner.invoke(app, ["register", "fresh", str(tmp_path / "model.zip"), "--json", "--url", url])
    assert json.loads(registered.stdout)["state"] == "AVAILABLE"


def test_the_page_of_the_manual_has_every_command_and_option() -> None:
    page = "\n".join(command_lines())
    for name, command in COMMANDS.items():
        assert f"`rowwise {name}" in page
        for parameter in command.params:
            if parameter.param_type_name != "argument" and parameter.name != "help":
                assert f"`{parameter.opts[0]}`" in page
    assert "[bold]" not in page
    for line in exit_code_lines():
        assert line.startswith("|")
