"""``rowwise unload``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from rowwise.cli.options import AsJson, Ca, ModelName, Token, Url, connected

__all__ = ["unload"]


def unload(
    name: ModelName,
    *,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = "http://127.0.0.1:8000",
    token: Token = None,
    ca: Ca = None,
    as_json: AsJson = False,
) -> None:
    """Let no version of a model answer any more, also after a restart. Nothing is deleted.

    What was admitted is answered first; after that callers get 404 until [bold]rowwise activate[/bold] names a version
    again. Versions that a label leads to go on answering by it.

    [bold]Examples[/bold]

        rowwise unload ranker

        rowwise unload ranker --yes --json
    """
    if not is_sure:
        if not sys.stdin.isatty():
            raise typer.BadParameter("nobody can be asked here: say --yes if it is meant", param_hint="--yes")
        typer.confirm(f"No version of {name} at {url} will answer any more. Unload it?", abort=True, err=True)
    with connected(url, token, ca=ca) as client:
        client.unload(name)
    if as_json:
        typer.echo(json.dumps({"model": name, "unloaded": True}, indent=1))
    else:
        typer.echo(f"{name} is unloaded; rowwise activate {name} VERSION lets it answer again")
