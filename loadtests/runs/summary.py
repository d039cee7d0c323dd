"""The report on a terminal, from its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["summary"]

Json = Mapping[str, Any]

_COLUMNS = ("requests", "failed", "requests/s", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms")


def summary(report: Json) -> Iterator[RenderableType]:
    """Yield what to print."""
    run = report["run"]
    if report["ramp"] is not None:
        yield from _ramp(report["ramp"])
    if report["comparison"] is not None:
        yield _comparison(report["comparison"])
    if run is not None and report["comparison"] is None:
        yield _run(run)
    if run is not None:
        for failure in run["figures"]["failures"]:
            yield Text(f"{failure['count']:,} x {failure['kind']}: {failure['example'][:200]}", style="red")
    generator = report["generator"]
    yield Text(
        f"Driven by {generator['engine']}: {generator['reason']}. It was at work for {generator['busy']:.0%} of a core"
        + (", and may have been the limit." if generator["is_limit"] else ", and was not the limit.")
    )
    for remark in report["remarks"]:
        yield Text(f"- {remark}", style="yellow")
    for target in report["targets"]:
        if not target["is_met"]:
            yield Text(
                f"Missed: {target['name']} {target['got']:,.4g}, wanted {target['wanted']:,.4g}", style="bold red"
            )


def _run(run: Json) -> Table:
    load = run["load"]
    what = f"open loop, {load['rate']:,.4g} requests/s" if load["kind"] == "open" else f"{load['callers']} callers"
    table = Table(title=f"{what}, {run['figures']['measured_s']:.1f} s", title_justify="left", box=None)
    table.add_column("")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for name, found in (("all", run["figures"]), *run["by_model"].items()):
        times = (f"{found[f'{key}_ms']:,.3g}" for key in ("p50", "p90", "p99", "p999", "max"))
        table.add_row(
            Text(name), f"{found['n_requests']:,}", f"{found['n_failed']:,}", f"{found['requests_per_s']:,.1f}", *times
        )
    return table


def _ramp(ramp: Json) -> Iterator[RenderableType]:
    table = Table(title=f"Ramp to a p99 of {ramp['target_p99_ms']:g} ms", title_justify="left", box=None)
    for column in ("step", "rate", "answered/s", "p99 ms", "failed", "generator"):
        table.add_column(column, justify="right")
    table.add_column("")
    for number, step in enumerate(ramp["steps"], 1):
        figures = step["figures"]
        table.add_row(
            str(number),
            f"{step['rate']:,.0f}",
            f"{figures['requests_per_s']:,.0f}",
            f"{figures['p99_ms']:.3g}",
            f"{figures['n_failed']:,}",
            f"{step['busy']:.0%}",
            Text("held", style="green") if step["holds"] else Text(step["miss"], style="red"),
        )
    yield table
    rate = ramp["capacity_per_s"]
    held = "held twice" if ramp["is_confirmed"] else "held once, not confirmed"
    yield Text(
        f"Capacity: {rate:,.0f} requests/s ({held}). Ended: {ramp['reason']}."
        if rate is not None
        else f"No rate held. Ended: {ramp['reason']}.",
        style="bold",
    )


def _comparison(comparison: Json) -> Table:
    first, second = comparison["contenders"]
    table = Table(title=f"Medians of {len(first['runs'])} interleaved runs", title_justify="left", box=None)
    table.add_column("")
    for name in (first["name"], second["name"], "ratio", "lowest", "highest"):
        table.add_column(name, justify="right")
    for key, name in (("requests_per_s", "requests/s"), ("p50_ms", "p50 ms"), ("p99_ms", "p99 ms")):
        ratio = comparison["ratios"].get(key)
        spread = (ratio["median"], min(ratio["pairs"]), max(ratio["pairs"])) if ratio else ()
        table.add_row(
            name,
            f"{first['median'][key]:,.4g}",
            f"{second['median'][key]:,.4g}",
            *(f"{value:.2f}x" for value in spread),
        )
    return table
