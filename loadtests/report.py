"""A comparison's table, as Markdown that says where each gain comes from, and its picture."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadtests.comparison import BATCHED, CONTENDERS, LIMITED, LOOPED, Comparison

__all__ = ["draw", "duration", "markdown", "others"]

#: A driver that was at work for this share of the time may itself have been the limit.
BUSY = 0.9
#: Cores that others may use without a word about it.
OTHERS = 0.15
#: Gains below this are within what one run differs from the next on a shared machine.
_LITTLE = 1.25
_COLORS = {BATCHED: "#0b6e4f", LIMITED: "#e09f3e", LOOPED: "#9e2a2b"}


def duration(microseconds: float) -> str:
    """Return a time in the unit that suits it."""
    if microseconds < 1_000:
        return f"{microseconds:.0f} us"
    return f"{microseconds / 1_000:.{1 if microseconds < 100_000 else 0}f} ms"


def markdown(comparison: Comparison, *, picture: str | None = None) -> str:
    """Return the report. ``picture`` is the file name of what ``draw`` wrote."""
    machine = ", ".join(f"{key} {value}" for key, value in comparison.machine.items())
    where = "server and driver on a core each" if comparison.pinned else "server and driver on the same cores"
    facts = (
        f"{machine}; {where}; medians of {comparison.repeats} interleaved runs, every answer checked "
        f"({comparison.n_checked():,} answers, {_n_failed(comparison):,} wrong or missing)."
    )
    reading = (
        "One request holds one example; each caller waits for its answer before it sends the next. "
        f"*{LIMITED}* is the same server told to run one row at a time: it separates what batching gains from what "
        f"a cheap call gains. *{LOOPED}* is the hand-made service: one `tf.function` call for each request."
    )
    parts = ["# Load comparison", facts, *others(comparison.others), reading]
    parts += ["## Where the gain comes from", *_gains(comparison)]
    if picture:
        parts.append(f"![Throughput and latency against callers]({picture})")
    parts.append("## Figures")
    for model in comparison.models:
        parts += [f"### {model}", "\n".join(_table(comparison, model))]
    parts += ["## The driver", *_driver(comparison)]
    failures = [f"- {run.model}, {run.contender}, {run.callers} callers: {what}" for run, what in comparison.failures()]
    if failures:
        parts += ["## Wrong and missing answers", "\n".join(failures)]
    return "\n\n".join(parts) + "\n"


def others(cores: float) -> Iterator[str]:
    """Say that the machine was not ours alone, if so; ``cores`` is what ``cores_in_use`` saw before the start."""
    if cores > OTHERS:
        yield (
            f"Other processes kept {cores:.1f} cores busy when this started: all figures are too low, and their "
            "ratios are rough."
        )


def _n_failed(comparison: Comparison) -> int:
    return sum(sum(run.measured.failures.values()) for run in comparison.runs)


def _gains(comparison: Comparison) -> Iterator[str]:
    callers = max(comparison.callers)
    lines = [
        f"At {callers} callers, requests/s. Overall = calls x batching.",
        "",
        f"| model | {' | '.join(CONTENDERS)} | overall | by cheaper calls | by batching | |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for model in comparison.models:
        rates = [comparison.median(model, contender, callers).requests_per_s for contender in CONTENDERS]
        batched, limited, looped = rates
        calls, batching = limited / looped, batched / limited
        cells = " | ".join(f"{rate:,.0f}" for rate in rates)
        lines.append(
            f"| {model} | {cells} | {batched / looped:.1f}x | {calls:.1f}x | {batching:.1f}x "
            f"| {_verdict(calls=calls, batching=batching)} |"
        )
    yield "\n".join(lines)


def _verdict(*, calls: float, batching: float) -> str:
    if batching >= _LITTLE and calls >= _LITTLE:
        return "both: the rows of a batch share what a call costs once, and the hand-made call costs more"
    if batching >= _LITTLE:
        return "batching: the rows of a batch share what a call costs once (many small ops, large weights)"
    if calls >= _LITTLE:
        return "calls: a row takes as long in a batch as alone; the loop loses by its overhead"
    if batching > 1 / _LITTLE:
        return "little: the model's own arithmetic is nearly all of the time"
    return "loss: a batch costs more than its rows alone"


def _table(comparison: Comparison, model: str) -> Iterator[str]:
    yield "| callers | contender | requests/s | lowest..highest | p50 | p99 | server CPU for each | |"
    yield "|---:|---|---:|---:|---:|---:|---:|---|"
    for callers, contender in itertools.product(comparison.callers, CONTENDERS):
        cell = comparison.median(model, contender, callers)
        limit = "driver busy: a lower bound" if cell.busy > BUSY else ""
        yield (
            f"| {callers} | {contender} | {cell.requests_per_s:,.0f} | {cell.lowest:,.0f}..{cell.highest:,.0f} "
            f"| {duration(cell.p50_us)} | {duration(cell.p99_us)} | {duration(cell.server_us)} | {limit} |"
        )


def _driver(comparison: Comparison) -> Iterator[str]:
    lines = [
        "What it can send at most: against a process that answers the same bytes to everything.",
        "",
        "| callers | requests/s | p50 | busy |",
        "|---:|---:|---:|---:|",
    ]
    for callers, measured in comparison.capacity.items():
        lines.append(
            f"| {callers} | {measured.requests_per_s:,.0f} | {duration(measured.p50_us)} | {measured.busy:.0%} |"
        )
    yield "\n".join(lines)
    bare = comparison.capacity.get(1)
    if bare is not None and 1 in comparison.callers:
        above = [
            f"{model} {duration(comparison.median(model, BATCHED, 1).p50_us - bare.p50_us)}"
            for model in comparison.models
        ]
        yield f"A lone caller's median above that bare round trip: {', '.join(above)}."
    if comparison.wrk:
        lines = [
            f"The same requests sent by wrk, {comparison.models[0]}:",
            "",
            "| contender | callers | this driver | wrk |",
            "|---|---:|---:|---:|",
        ]
        for contender, callers, rate in comparison.wrk:
            ours = comparison.median(comparison.models[0], contender, callers).requests_per_s
            lines.append(f"| {contender} | {callers} | {ours:,.0f} | {rate:,.0f} |")
        yield "\n".join(lines)


def draw(comparison: Comparison, path: Path) -> None:
    """Write throughput and latency against callers, one column for each model, as a PNG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    models, callers = comparison.models, comparison.callers
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.3}):
        figure = Figure(figsize=(max(6.0, 3.6 * len(models)), 6.8), layout="constrained")
        FigureCanvasAgg(figure)
        panels: Any = figure.subplots(2, len(models), sharex=True, squeeze=False)
        for column, model in enumerate(models):
            rates, times = panels[0][column], panels[1][column]
            for contender in CONTENDERS:
                cells = [comparison.median(model, contender, level) for level in callers]
                color = _COLORS[contender]
                rates.plot(callers, [cell.requests_per_s for cell in cells], "o-", color=color, label=contender)
                rates.fill_between(
                    callers, [cell.lowest for cell in cells], [cell.highest for cell in cells], color=color, alpha=0.15
                )
                times.plot(callers, [cell.p50_us / 1e3 for cell in cells], "o-", color=color)
                times.plot(callers, [cell.p99_us / 1e3 for cell in cells], "^:", color=color)
            rates.set_title(model)
            rates.set_ylim(bottom=0)
            times.set_xscale("log", base=2)
            times.set_xticks(callers, [str(level) for level in callers])
            times.set_yscale("log")
            times.set_xlabel("callers")
        panels[0][0].set_ylabel("requests/s (band: lowest to highest run)")
        panels[1][0].set_ylabel("ms, p50 (line) and p99 (dotted)")
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=len(CONTENDERS))
        figure.savefig(path, dpi=130)
