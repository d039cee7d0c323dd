"""``rowwise certificate``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rowwise.cli.certificate_report import certificate_report
from rowwise.cli.options import AsJson, Ca, ModelName, Token, Url, Version, connected
from rowwise.cli.report import cost_chart, cost_table
from rowwise.cli.screen import screen

__all__ = ["certificate"]


def certificate(
    name: ModelName,
    *,
    version: Version = None,
    as_json: AsJson = False,
    with_costs: Annotated[bool, typer.Option("--costs", help="Also print what each batch size costs.")] = False,
    url: Url = "http://127.0.0.1:8000",
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Show how a model was vectorized: each op, what was checked at each batch size, and how closely it agreed.

    [bold]Examples[/bold]

        rowwise certificate digits

        rowwise certificate digits --costs

        rowwise certificate digits --version 3 --json > certificate.json
    """
    with connected(url, token, ca=ca) as client:
        document = client.certificate(name, version)
        costs = client.costs(name, version) if with_costs else None
    if as_json:
        typer.echo(json.dumps({"certificate": document, "costs": costs} if with_costs else document, indent=1))
        return
    console = screen()
    console.print(certificate_report(document))
    if costs is not None:
        console.print(cost_table(costs), cost_chart(costs), sep="\n")
