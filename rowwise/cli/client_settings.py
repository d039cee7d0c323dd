"""Server, token and authorities of the commands that talk to a server: where they come from.

A flag goes first, then the environment, then the table ``client`` of a TOML file, then the default. The file is the one
that ``--config`` or ROWWISE_CONFIG names, else the user's own, which a server never reads by itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

__all__ = ["NAMES", "ClientFile", "defaults_of", "read_client_file", "users_file"]

NAMES = ("url", "token", "ca")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFile:
    """What a file says for the client's commands, and on which line. ``path`` None: there is no such file."""

    path: Path | None
    values: Mapping[str, str]
    lines: Mapping[str, int | None]

    def place(self, name: str) -> str:
        """Return FILE:LINE of a value that it has."""
        line = self.lines.get(name)
        return str(self.path) if line is None else f"{self.path}:{line}"


def users_file() -> Path:
    """Return the user's own file: ~/.config/rowwise/config.toml, or below XDG_CONFIG_HOME."""
    return Path(typer.get_app_dir("rowwise")) / "config.toml"


def read_client_file(named: Path | None) -> ClientFile:
    """Read the table ``client`` of the file that was named, else of the user's own if there is one.

    Errors: typer.BadParameter that names file and line.
    """
    from server.toml_lines import line_of  # the client's commands load nothing of the server unless there is a file

    path = users_file() if named is None else named
    if named is None and not path.is_file():
        return ClientFile(path=None, values={}, lines={})
    try:
        text = path.read_text(encoding="utf-8")
        table = tomllib.loads(text).get("client", {})
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise _wrong(f"{path} can't be read: {reason}") from error
    if not isinstance(table, dict):
        raise _wrong(f"{path}:{line_of(text, 'client')}: expected a table [client]")
    lines = {name: line_of(text, "client", name) for name in table}
    for name, value in table.items():
        if name not in NAMES:
            raise _wrong(f"{path}:{lines[name]}: expected {', '.join(NAMES)} in [client], got {name!r}")
        if not isinstance(value, str) or not value:
            raise _wrong(f"{path}:{lines[name]}: expected text for {name!r}")
    return ClientFile(path=path, values=table, lines=lines)


def defaults_of(commands: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the values for those commands, by name, that talk to a server: they have --url besides the others."""
    found = {}
    for name, command in commands.items():
        options = {parameter.name for parameter in command.params}
        if any("--url" in parameter.opts and parameter.name == "url" for parameter in command.params):
            found[name] = {key: value for key, value in values.items() if key in options}
    return found


def _wrong(sentence: str) -> typer.BadParameter:
    return typer.BadParameter(sentence, param_hint="--config / ROWWISE_CONFIG")
