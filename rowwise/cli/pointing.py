"""``rowwise activate``, ``rowwise rollback``, ``rowwise label`` and ``rowwise history``: which version answers."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from rowwise.cli.options import AsJson, Ca, ModelName, Token, Url, connected
from rowwise.cli.screen import screen

__all__ = ["activate", "history", "label", "rollback"]

_URL = "http://127.0.0.1:8000"


def activate(
    name: ModelName,
    version: Annotated[int, typer.Argument(min=1, help="The version that is to answer.")],
    *,
    url: Url = _URL,
    token: Token = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Let a version answer in place of the one that does. It is loaded and warmed first; no request fails by it.

    [bold]Example[/bold]

        rowwise activate ranker 4
    """
    with connected(url, token, ca=ca) as client:
        client.activate(name, version)
    _say_who_answers(name, version, as_json=as_json)


def rollback(name: ModelName, *, url: Url = _URL, token: Token = None, ca: Ca = None, as_json: AsJson = False) -> None:
    """Let the version answer that did before the one that does. A second rollback goes back one more.

    [bold]Example[/bold]

        rowwise rollback ranker
    """
    with connected(url, token, ca=ca) as client:
        status = client.rollback(name)
    _say_who_answers(name, status.version, as_json=as_json)


def label(
    name: ModelName,
    label: Annotated[str | None, typer.Argument(help="The label; without it, list those that are set.")] = None,
    version: Annotated[int | None, typer.Argument(min=1, help="The version that it is to lead to.")] = None,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the label.")] = False,
    url: Url = _URL,
    token: Token = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Let a label lead to a version: requests to /v1/models/NAME/labels/LABEL:predict go there, active or not.

    The version is loaded before the label moves, and stays loaded while a label leads to it. Switches and rollbacks
    move no label.

    [bold]Examples[/bold]

        rowwise label ranker stable 3

        rowwise label ranker canary 4

        rowwise label ranker

        rowwise label ranker canary --remove
    """
    if (version is not None and remove) or (label is None and remove):
        raise typer.BadParameter("name the label that is to go, and no version", param_hint="--remove")
    if label is not None and version is None and not remove:
        raise typer.BadParameter("name the version that the label is to lead to, or --remove", param_hint="VERSION")
    with connected(url, token, ca=ca) as client:
        if label is not None and remove:
            client.remove_label(name, label)
        elif label is not None and version is not None:
            client.set_label(name, label, version)
        labels = client.labels(name)
    if as_json:
        typer.echo(json.dumps(labels, indent=1))
    elif labels:
        table = Table("label", "version", box=None, header_style="bold")
        for each, leads_to in sorted(labels.items()):
            table.add_row(each, str(leads_to))
        screen().print(table)
    else:
        typer.echo(f"No label of {name} is set. Set one: rowwise label {name} LABEL VERSION")


def history(name: ModelName, *, url: Url = _URL, token: Token = None, ca: Ca = None, as_json: AsJson = False) -> None:
    """List which version was activated when, and by whom, oldest first.

    [bold]Example[/bold]

        rowwise history ranker
    """
    with connected(url, token, ca=ca) as client:
        entries = client.history(name)
    if as_json:
        typer.echo(json.dumps(entries, indent=1))
        return
    table = Table("at", "version", "by", box=None, header_style="bold")
    for entry in entries:
        table.add_row(entry["at"], "unloaded" if entry["version"] is None else str(entry["version"]), entry["by"])
    screen().print(table)


def _say_who_answers(name: str, version: int, *, as_json: bool) -> None:
    told = {"model": name, "version": version, "active": True}
    typer.echo(json.dumps(told, indent=1) if as_json else f"{name} version {version} answers")
