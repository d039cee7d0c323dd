"""Each block of the manual has a right form, and a test that runs it or a reason why none does."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import tomllib

import pytest
import typer
import yaml

from rowwise.cli.app import app
from tests.command_lines import parse
from tests.manual.blocks import PAGES, Block, Command, blocks
from tests.manual.running import RUN_BESIDE_A_SERVER, RUN_IN_PROCESS
from tests.source_files import ROOT

ALL = [block for page in PAGES for block in blocks(page)]
COMMANDS = [(block, command) for block in ALL if block.language == "console" for command in block.commands()]

#: Programs that a reader has, and what the manual asks for besides.
_PROGRAMS = frozenset(
    {
        *(".", "cat", "cp", "curl", "docker", "export", "ls", "mkdir", "tar"),
        *("convert/bin/onnx2tf", "convert/bin/pip", "kubectl", "pip", "promtool", "python3.11"),
        "scripts/install-debian-packages.sh",
    }
)


#: Folders that commands make.
_MADE = frozenset({"benchmarks/results/"})


def test_languages_are_those_that_something_checks() -> None:
    assert {block.language for block in ALL} <= {"console", "json", "python", "toml", "yaml"}


def test_every_block_that_can_be_run_is_run_on_its_page_or_says_why_not() -> None:
    run = {*RUN_IN_PROCESS, *RUN_BESIDE_A_SERVER}
    left = {str(block) for block in ALL if block.is_run and block.page not in run}
    assert not left, f"no test runs {sorted(left)}: name the page in tests/manual/running.py, or say why not"
    assert run <= set(PAGES)


@pytest.mark.parametrize("block", [b for b in ALL if b.language in ("json", "python", "toml", "yaml")], ids=str)
def test_what_is_data_or_python_can_be_read(block: Block) -> None:
    if block.language == "python":
        compile(block.text, str(block), "exec")
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "yaml":
        assert list(yaml.safe_load_all(block.text))
    else:
        lines = block.text.splitlines()
        for text in lines if all(line.startswith("{") and line.endswith("}") for line in lines) else [block.text]:
            json.loads(text)


def _words(command: Command) -> list[str]:
    words = shlex.split(command.line.replace("\\\n", " "), comments=True)
    if words and words[0].endswith("=$(openssl"):
        return []
    while words and re.fullmatch(r"[A-Za-z_]+=.*", words[0]):
        words.pop(0)
    for end in ("|", "&&", "&", ">", ";"):
        if end in words:
            words = words[: words.index(end)]
    return words


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=str)
def test_commands_are_such_as_exist_with_options_that_they_have(block: Block, command: Command) -> None:
    words = _words(command)
    if not words:
        return
    program, *arguments = words
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {word for word in arguments if "=" not in word} <= targets
    elif program == "rowwise":
        parse(typer.main.get_command(app), arguments)
    elif program.rpartition("/")[2] in ("python", "locust"):
        if arguments[:1] == ["-m"]:
            assert importlib.util.find_spec(arguments[1]), f"{block}: there is no {arguments[1]}"
    else:
        assert program in _PROGRAMS, f"{block}: what is {program}?"


def test_what_the_pages_link_to_in_the_tree_is_there() -> None:
    broken = []
    for page in (*PAGES, "DECISIONS.md", "CHANGELOG.md"):
        text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path = target.partition("#")[0]
            if path and "://" not in target and not ((ROOT / page).parent / path).exists():
                broken.append(f"{page}: {target}")
    assert not broken


def test_files_that_the_pages_name_are_there() -> None:
    """Paths in backquotes, below a folder of the tree."""
    tracked = set(
        subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    )
    folders = {path.rpartition("/")[0] for path in tracked} | {path.split("/")[0] for path in tracked}
    top = {path.split("/")[0] for path in tracked if "/" in path}
    missing = []
    for page in (*PAGES, "DECISIONS.md"):
        named = re.findall(r"`([a-z_]+/[A-Za-z0-9_./-]*)`", (ROOT / page).read_text())
        missing += [
            f"{page}: {path}"
            for path in named
            if path.split("/")[0] in top and path.rstrip("/") not in tracked | folders and path not in _MADE
        ]
    assert not missing
