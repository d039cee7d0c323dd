"""``rowwise models``."""

from __future__ import annotations

import json
from collections.abc import Sequence

import typer
from rich.table import Table

from rowwise.cli.options import AsJson, Ca, Token, Url, connected
from rowwise.cli.screen import screen
from rowwise.version_status import VersionStatus

__all__ = ["models", "models_table"]

_STYLES = {"AVAILABLE": "green", "FAILED": "red", "UNLOADED": "dim"}


def models(*, url: Url = "http://127.0.0.1:8000", token: Token = None, ca: Ca = None, as_json: AsJson = False) -> None:
    """List the models of a server and their versions.

    [bold]Examples[/bold]

        rowwise models

        rowwise models --url http://gpu1:8000 --json | jq '.[].model'
    """
    with connected(url, token, ca=ca) as client:
        listed = client.models()
    if as_json:
        typer.echo(json.dumps([status.to_json() for status in listed], indent=1))
    elif listed:
        screen().print(models_table(listed))
    else:
        typer.echo("No models. Register one: rowwise register NAME MODULE:FUNCTION")


def models_table(listed: Sequence[VersionStatus]) -> Table:
    """Return a table with one line for each version, the active one marked."""
    table = Table("model", "version", "state", "active", "created", "reason", box=None, header_style="bold")
    table.columns[1].justify = "right"
    table.columns[0].overflow = table.columns[5].overflow = "fold"
    for status in listed:
        state = status.state
        if status.stage is not None and status.stage.total:
            state += f" ({status.stage.name} {status.stage.done}/{status.stage.total})"
        table.add_row(
            status.model,
            str(status.version),
            f"[{_STYLES[status.state]}]{state}[/]" if status.state in _STYLES else state,
            "yes" if status.active else "",
            status.created_at,
            status.reason.replace("[", r"\["),
        )
    return table
