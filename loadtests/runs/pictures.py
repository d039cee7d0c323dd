"""The report's pictures, from its JSON alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from loadtests.runs.charts import Axis, Chart, nines

__all__ = ["compared", "distribution", "histogram", "latency_over_time", "ramp", "throughput_over_time"]

Json = Mapping[str, Any]

_SHARES = ((0.0, "0 %"), (0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %"))


def throughput_over_time(timeline: Sequence[Json]) -> str:
    """Return right answers, and failures, a second."""
    highest = max(each["requests_per_s"] for each in timeline)
    failed = max(each["failed_per_s"] for each in timeline)
    chart = Chart(
        _seconds(timeline),
        Axis(title="requests/s", low=0, high=1.08 * max(highest, failed, 1)),
        label="Right answers and failures a second, over the measured time",
    )
    chart.line([(_middle(each), each["requests_per_s"]) for each in timeline], "s1")
    if failed:
        chart.line([(_middle(each), each["failed_per_s"]) for each in timeline], "bad")
    chart.dots(
        [(_middle(each), each["requests_per_s"]) for each in timeline],
        "s1",
        [f"at {_middle(each):.1f} s: {each['requests_per_s']:,.0f} requests/s" for each in timeline],
        radius=2.5,
    )
    return chart.svg()


def latency_over_time(timeline: Sequence[Json], *, target_ms: float | None) -> str:
    """Return median and p99 of what ended in each stretch."""
    known = [each for each in timeline if each["p99_ms"] is not None]
    if not known:
        return ""
    values = [value for each in known for value in (each["p50_ms"], each["p99_ms"])]
    chart = Chart(
        _seconds(timeline),
        _milliseconds([*values, *([target_ms] if target_ms else [])]),
        label="Median and 99th percentile of latency, over the measured time",
    )
    for name, css in (("p50_ms", "s1"), ("p99_ms", "s2")):
        chart.line([None if each[name] is None else (_middle(each), each[name]) for each in timeline], css)
        chart.dots(
            [(_middle(each), each[name]) for each in known],
            css,
            [f"at {_middle(each):.1f} s: {name[:3]} {each[name]:.3g} ms" for each in known],
            radius=2.5,
        )
    if target_ms:
        chart.across(target_ms, f"target p99 {target_ms:g} ms")
    return chart.svg()


def histogram(curves: Json, figures: Json, *, target_ms: float | None) -> str:
    """Return how many answers took how long, in bins of equal ratio."""
    edges, counts = curves["edges_ms"], curves["counts"]
    chart = Chart(
        Axis(title="latency, ms (logarithmic)", low=edges[0], high=edges[-1], is_log=True),
        Axis(title="answers", low=0, high=1.12 * max(counts)),
        label="Histogram of latencies",
    )
    titles = [
        f"{low:.3g} to {high:.3g} ms: {count:,}" for low, high, count in zip(edges, edges[1:], counts, strict=False)
    ]
    chart.bars(edges, counts, "s1", titles)
    for row, name in enumerate(("p50", "p99")):
        value = figures[f"{name}_ms"]
        chart.upright(value, f"{name} {value:.3g} ms", "mark", row=row)
    if target_ms and edges[0] <= target_ms <= edges[-1]:
        chart.upright(target_ms, f"target {target_ms:g} ms", row=2)
    return chart.svg()


def distribution(curves: Json, *, n: int, target_ms: float | None) -> str:
    """Return the latency that each share of ``n`` answers did not exceed; the tail has as much room as the rest."""
    # The slowest of n is drawn where n answers can tell shares apart.
    points = [
        (nines(min(share, 1 - 1 / (n + 1))), latency)
        for share, latency in zip(curves["shares"], curves["latency_ms"], strict=True)
        if latency
    ]
    shares = [share for share in _SHARES if nines(share[0]) <= max(point[0] for point in points) + 0.01]
    latencies = [latency for _, latency in points]
    chart = Chart(
        Axis(
            title="share of answers that took no longer",
            low=0,
            high=max(nines(shares[-1][0]), points[-1][0]),
            ticks=tuple((nines(share), text) for share, text in shares),
        ),
        _milliseconds([*latencies, *([target_ms] if target_ms else [])]),
        label="Latency at each share of answers",
    )
    chart.line(points, "s1")
    if target_ms:
        chart.across(target_ms, f"target p99 {target_ms:g} ms")
    return chart.svg()


def ramp(found: Json) -> str:
    """Return the p99 of each step against its rate."""
    steps = [step for step in found["steps"] if step["figures"]["n_latencies"]]
    if not steps:
        return ""
    rates = [step["rate"] for step in steps]
    target_ms = found["target_p99_ms"]
    chart = Chart(
        Axis(title="requests/s (logarithmic)", low=0.85 * min(rates), high=1.15 * max(rates), is_log=True),
        _milliseconds([*(step["figures"]["p99_ms"] for step in steps), *([target_ms] if target_ms else [])]),
        label="99th percentile of each step of the ramp against its rate",
        width=1000,
    )
    if target_ms:
        chart.across(target_ms, f"target p99 {target_ms:g} ms")
    if found["capacity_per_s"]:
        chart.upright(found["capacity_per_s"], f"capacity {found['capacity_per_s']:,.0f}/s", "mark")
    for holds, css in ((True, "s1"), (False, "bad")):
        chosen = [(number, step) for number, step in enumerate(steps, 1) if step["holds"] == holds]
        chart.dots(
            [(step["rate"], step["figures"]["p99_ms"]) for _, step in chosen],
            css,
            [
                f"step {number}: {step['rate']:,.0f}/s, p99 {step['figures']['p99_ms']:.3g} ms"
                for number, step in chosen
            ],
            radius=5,
        )
    return chart.svg()


def compared(comparison: Json, what: str, *, title: str) -> str:
    """Return one figure of each run of two servers."""
    contenders = comparison["contenders"]
    n_runs = max(len(each["runs"]) for each in contenders)
    highest = max((run[what] for each in contenders for run in each["runs"]), default=1.0)
    chart = Chart(
        Axis(title="run", low=0.5, high=n_runs + 0.5, ticks=tuple((n, str(n)) for n in range(1, n_runs + 1))),
        Axis(title=title, low=0, high=1.1 * max(highest, 1e-9)),
        label=f"{title} of each run of two servers",
    )
    for each, css in zip(contenders, ("s1", "s2"), strict=True):
        points = [(number, run[what]) for number, run in enumerate(each["runs"], 1)]
        chart.line(points, css)
        chart.dots(points, css, [f"{each['name']}, run {x}: {y:,.4g}" for x, y in points], radius=5)
    return chart.svg()


def _seconds(timeline: Sequence[Json]) -> Axis:
    return Axis(title="seconds of the measured time", low=0, high=timeline[-1]["at_s"] + timeline[-1]["length_s"])


def _milliseconds(values: Sequence[float]) -> Axis:
    low, high = max(min(values), 1e-3), max(*values, 1e-3)
    low, high = low / 1.25, high * 1.25
    if high / low < 4:
        middle = math.sqrt(low * high)
        low, high = middle / 2, middle * 2
    return Axis(title="ms (logarithmic)", low=low, high=high, is_log=True)


def _middle(interval: Json) -> float:
    return float(interval["at_s"] + interval["length_s"] / 2)
