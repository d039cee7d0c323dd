"""``rowwise config show``: what every setting comes to, and where it came from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from rowwise.cli.client_settings import read_client_file
from rowwise.cli.options import AsJson
from rowwise.cli.screen import screen
from rowwise.cli.serve import flags, settings_from
from rowwise.cli.serve_options import SERVE_OPTIONS, with_options

__all__ = ["config"]

config = typer.Typer(
    name="config",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Look at the settings of the server and of this command.",
)

_HIDDEN = "set, not shown"
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_CLIENT_DEFAULTS = {"url": "http://127.0.0.1:8000", "token": None, "ca": None}

ClientUrl = Annotated[
    str | None,
    typer.Option("--url", envvar="ROWWISE_URL", metavar="URL", help="As of the commands that talk to a server."),
]
ClientCa = Annotated[str | None, typer.Option("--ca", envvar="ROWWISE_CA", metavar="FILE", help="The same.")]


def _show(
    context: typer.Context,
    *,
    given: Mapping[str, Any],
    only_set: Annotated[bool, typer.Option("--only-set", help="Leave out what is as by default.")] = False,
    as_json: AsJson = False,
    url: ClientUrl = None,
    ca: ClientCa = None,
) -> None:
    """Show each setting's value, its unit, and where it came from: a flag, the environment, FILE:LINE or the default.

    Takes the options of [bold]rowwise serve[/bold]: put [bold]config show[/bold] in the place of [bold]serve[/bold] to
    see what a server would go by. The settings of the commands that talk to a server follow. Tokens are not shown.

    [bold]Examples[/bold]

        rowwise config show --only-set

        rowwise config show --config rowwise.toml --port 9000

        rowwise config show --json | jq '.server.queue_rows'

    Exit codes: 0; 2 where a setting is wrong, with where it came from.
    """
    settings = settings_from(given)
    from server.settings_origins import origins, unit_of

    found = origins(flags(given))
    server = {
        name: _entry(getattr(settings, name), unit_of(name), found[name].kind, found[name].where)
        for name in type(settings).model_fields
    }
    token = found["token"]
    of_flags = {"url": (url, _source(context, "url")), "ca": (ca, _source(context, "ca"))}
    if token.kind in {"flag", "environment"}:
        of_flags["token"] = _HIDDEN, token.kind
    told = {"server": server, "client": _client(settings.config, of_flags)}
    if only_set:
        told = {part: {k: v for k, v in of.items() if v["from"] != "default"} for part, of in told.items()}
    if as_json:
        typer.echo(json.dumps(told, indent=1))
        return
    titles = {"server": "rowwise serve", "client": "commands that talk to a server"}
    console = screen()
    for part, entries in told.items():
        console.print(Text(f"Settings of {titles[part]}", style="bold"), soft_wrap=True)
        console.print(_table(entries) if entries else "  all as by default")


def _client(config: Path | None, given: Mapping[str, tuple[str | None, str]]) -> dict[str, Any]:
    """Return the entries of the commands that talk to a server. ``given``: value and kind of source, as far as set."""
    file = read_client_file(config)
    told = {}
    for name, default in _CLIENT_DEFAULTS.items():
        value, source = given.get(name, (None, ""))
        if value is not None and source:
            told[name] = _entry(value, "", source, f"--{name}" if source == "flag" else f"ROWWISE_{name.upper()}")
        elif name in file.values:
            told[name] = _entry(_HIDDEN if name == "token" else file.values[name], "", "file", file.place(name))
        else:
            told[name] = _entry(default, "", "default", "")
    return told


def _source(context: typer.Context, name: str) -> str:
    source = context.get_parameter_source(name)
    return {"COMMANDLINE": "flag", "ENVIRONMENT": "environment"}.get(source.name if source else "", "")


def _entry(value: Any, unit: str, kind: str, where: str) -> dict[str, Any]:
    return {"value": _plain(value), "unit": unit, "from": kind, "where": where}


def _plain(value: Any) -> Any:
    """Return a value in JSON types, without what is secret in it."""
    if hasattr(value, "get_secret_value"):
        return _HIDDEN
    if isinstance(value, tuple):
        return [entry.name if hasattr(entry, "sha256") else _plain(entry) for entry in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return _USER_IN_URL.sub("***", str(value))


def _table(entries: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table("setting", "value", "unit", "from", box=None, header_style="dim")
    table.columns[1].overflow = table.columns[3].overflow = "fold"
    for name, entry in entries.items():
        is_default = entry["from"] == "default"
        table.add_row(
            Text(name),
            Text(_shown(entry["value"], entry["unit"])),
            entry["unit"],
            Text(entry["where"] or entry["from"], "dim" if is_default else "cyan"),
        )
    return table


def _shown(value: Any, unit: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    # What counts or measures something; a port does not.
    return f"{value:,}" if isinstance(value, int) and unit else str(value)


config.command("show")(with_options(_show, SERVE_OPTIONS))
