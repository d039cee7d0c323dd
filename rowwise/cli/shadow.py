"""``rowwise shadow``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rowwise.cli.options import Ca, ModelName, Token, Url, connected

__all__ = ["shadow"]


def shadow(
    name: ModelName,
    version: Annotated[int, typer.Argument(help="Version that is to run beside the one that serves.")],
    *,
    share: Annotated[
        float | None,
        typer.Option(help="Share of the live batches that it runs on; 0 ends it. Without it: only show.", min=0, max=1),
    ] = None,
    url: Url = "http://127.0.0.1:8000",
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Let a version run on live batches without answering anybody, and show how its answers compare, as JSON.

    [bold]Examples[/bold]

        rowwise shadow ranker 4 --share 0.1

        rowwise shadow ranker 4 | jq .rows_differing

        rowwise shadow ranker 4 --share 0
    """
    with connected(url, token, ca=ca) as client:
        report = client.shadow(name, version) if share is None else client.set_shadow(name, version, share)
    typer.echo(json.dumps(report, indent=1))
