"""``rowwise capacity``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from rowwise.cli.exit_codes import failed
from rowwise.cli.options import AsJson, Ca, ModelName, Token, Url, Version, connected
from rowwise.cli.report import costs_of
from rowwise.cli.screen import screen

if TYPE_CHECKING:
    from server.batching.simulation.capacity import ReplicaPlan

__all__ = ["capacity", "costs_with_requests"]


def capacity(
    name: ModelName,
    *,
    rate: Annotated[float, typer.Option("--rate", metavar="N", help="Rows a second, of all callers together.")],
    p99_ms: Annotated[
        float, typer.Option("--p99-ms", metavar="MS", help="Within which 99 of 100 are to be answered, in the server.")
    ],
    request_us: Annotated[
        float,
        typer.Option(
            "--request-us",
            min=0,
            metavar="US",
            help="What a request costs a replica besides its batch: reading it and writing its answer.",
        ),
    ] = 100.0,
    headroom: Annotated[
        float,
        typer.Option("--headroom", min=0, max=0.9, metavar="SHARE", help="Share of each replica that is kept free."),
    ] = 0.2,
    version: Version = None,
    as_json: AsJson = False,
    url: Url = "http://127.0.0.1:8000",
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Say how many replicas answer a load within a p99, from what the model's batches were measured to cost.

    Callers are taken to be many and independent (a Poisson process), and a replica to have one core for its engine. The
    network, a proxy's own waiting, and what machines share are not in it: measure with rowwise loadtest.

    [bold]Examples[/bold]

        rowwise capacity digits --rate 20000 --p99-ms 20

        rowwise capacity digits --rate 20000 --p99-ms 20 --request-us 60 --headroom 0.4 --json
    """
    from server.batching.costs import CostTable
    from server.batching.simulation.capacity import plan_replicas

    with connected(url, token, ca=ca) as client:
        document = client.costs(name, version)
    try:
        costs = CostTable(costs_with_requests(document, request_s=request_us / 1e6)).prepare()
        plan = plan_replicas(costs, rate=rate, p99_s=p99_ms / 1e3, headroom=headroom)
    except ValueError as error:
        raise failed(str(error)) from error
    if as_json:
        typer.echo(json.dumps({**asdict(plan), "target_rows": plan.waiting.rows_held}, indent=1))
    else:
        screen().print(_table(plan, name=name, rate=rate, p99_ms=p99_ms))


def costs_with_requests(document: Mapping[str, Any], *, request_s: float) -> dict[int, float]:
    """Return seconds of each batch size that is served, with what its requests cost besides, one row each.

    Of a model of several padded lengths the longest is taken. Errors: ValueError where no cost was measured.
    """
    from server.batching.costs import TURN_S

    read = costs_of(document)
    if not read or not all(cost.cost_s for cost in read):
        raise ValueError("the model's batches were not measured: register it again")
    longest = read[-1].lengths
    return {cost.rows: cost.cost_s + TURN_S + cost.rows * request_s for cost in read if cost.lengths == longest}


def _table(plan: ReplicaPlan, *, name: str, rate: float, p99_ms: float) -> Table:
    waiting = plan.waiting
    table = Table(title=f"{name}: {rate:,.0f} rows/s, p99 {p99_ms:g} ms", title_justify="left", show_header=False)
    for what, value in (
        ("replicas", f"{plan.replicas}"),
        ("one takes at most", f"{plan.most_rate:,.0f} rows/s"),
        ("each gets", f"{waiting.rate:,.0f} rows/s"),
        ("mean, p50, p99", f"{waiting.mean_s * 1e3:.2f}, {waiting.p50_s * 1e3:.2f}, {waiting.p99_s * 1e3:.2f} ms"),
        ("rows of a batch", f"{waiting.batch_rows:.1f}"),
        ("rows held by each (--target-rows)", f"{waiting.rows_held:.1f}"),
    ):
        table.add_row(what, value)
    return table
