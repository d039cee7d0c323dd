"""Every command of ``rowwise`` as the manual lists it: from its own help, so that the page can't tell another story."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from rowwise.cli import app
from rowwise.cli.exit_codes import ExitCode
from rowwise.cli.serve_options import SERVE_OPTIONS

__all__ = ["command_lines", "exit_code_lines"]

_OF_SERVE = {option.name for option in SERVE_OPTIONS}
_MARKUP = {r"\[bold\](.*?)\[/bold\]": r"**\1**", r"\\\[": "[", r"(?<![`\w])--([a-z][a-z-]*)": r"`--\1`"}


def command_lines() -> Iterator[str]:
    """Yield MyST: for each command its usage, its help, its examples and its options."""
    for names, command in _leaves(typer.main.get_command(app)):
        usage = " ".join(["rowwise", *names, *_arguments(command)])
        yield f"`{usage}`"
        body = [*_help(command.help), "", *_options(command)]
        for number, line in enumerate(body):
            yield (": " if number == 0 else "  ") + line if line else ""
        yield ""


def exit_code_lines() -> Iterator[str]:
    """Yield MyST: a table of the exit codes."""
    yield "| exit code | |"
    yield "|---|---|"
    for code in ExitCode:
        yield f"| {code.value} | {code.meaning} |"


def _leaves(command: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield names, command
        return
    for name, inner in command.commands.items():
        yield from _leaves(inner, *names, name)


def _arguments(command: Any) -> Iterator[str]:
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = parameter.metavar or parameter.name.upper()
            yield name if parameter.required or name.startswith("[") else f"[{name}]"


def _help(text: str) -> Iterator[str]:
    """Yield the paragraphs, with what is typed in a block of its own."""
    typed: list[str] = []
    for line in [*text.strip().splitlines(), "end"]:
        words = line.strip()
        if line.startswith("    ") and words.startswith("rowwise "):
            typed.append(words)
            continue
        if typed and words:
            yield from ["```text", *typed, "```", ""]
            typed = []
        if line != "end" and not typed:
            yield _marked(words)


def _options(command: Any) -> Iterator[str]:
    names = {parameter.name for parameter in command.params}
    is_another = command.name != "serve" and names >= _OF_SERVE
    for parameter in command.params:
        if parameter.param_type_name == "argument" or parameter.name == "help":
            continue
        if is_another and parameter.name in _OF_SERVE:
            continue
        flags = " / ".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts))
        variable = f" (`{parameter.envvar}`)" if isinstance(parameter.envvar, str) else ""
        yield f"- {flags}{variable}: {_marked(' '.join((parameter.help or '').split()))}"
    if is_another:
        yield "- and the options of `rowwise serve`"


def _marked(text: str) -> str:
    for pattern, replacement in _MARKUP.items():
        text = re.sub(pattern, replacement, text)
    return text
