"""Measured costs as people read them, from their JSON alone.

The JSON is that of ``costs.json``: its ``entries`` map an entry point to one object for each compiled graph and
execution mode that was timed: ``rows``, ``lengths``, ``cost_s`` (median seconds of one call, null where it failed),
``compiler``, ``executor``, ``intra_op_threads``, and ``chosen``, true for the mode that serves this graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from rowwise.errors import BadAnswer

__all__ = ["Cost", "cost_chart", "cost_table", "costs_of", "sizes"]

_ENTRY = "predict"
#: Columns of the longest bar: with its labels it fits an 80-column terminal.
_BAR_COLUMNS = 44
#: From one eighth of a column to a whole one.
_BLOCKS = "▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one compiled graph costs: seconds of one call, and in which execution mode."""

    rows: int
    lengths: tuple[int, ...]
    cost_s: float
    mode: str
    n_measured: int

    @property
    def row_cost_s(self) -> float:
        """Seconds for each row of a full batch."""
        return self.cost_s / self.rows


def costs_of(costs: Mapping[str, Any], *, entry: str = _ENTRY) -> list[Cost]:
    """Return the chosen modes' costs, ascending by padded lengths, then by rows. Errors: BadAnswer."""
    try:
        timed = [(_bucket(each), each) for each in costs["entries"][entry] if each["cost_s"] is not None]
        n_measured = Counter(bucket for bucket, _ in timed)
        read = [
            Cost(
                rows=bucket[1],
                lengths=bucket[0],
                cost_s=float(each["cost_s"]),
                mode=_mode(each),
                n_measured=n_measured[bucket],
            )
            for bucket, each in timed
            if each["chosen"]
        ]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadAnswer(f"these are no costs of a model's {entry!r}: {error!r}") from error
    return sorted(read, key=lambda cost: (cost.lengths, cost.rows))


def cost_table(costs: Mapping[str, Any], *, entry: str = _ENTRY) -> Table:
    """Return a table: for each bucket the time of a call, the time for a row, and the mode that won."""
    read = costs_of(costs, entry=entry)
    with_lengths = any(cost.lengths for cost in read)
    table = Table(title="Measured costs", title_justify="left", box=None, header_style="bold")
    headers = ["batch", *(["length"] if with_lengths else []), "call µs", "row µs", "rows/s", "gain"]
    for header in headers:
        table.add_column(header, justify="right")
    table.add_column("mode")
    alone = {cost.lengths: cost.row_cost_s for cost in reversed(read)}  # the smallest bucket of each length
    for cost in read:
        table.add_row(
            str(cost.rows),
            *([sizes(cost.lengths)] if with_lengths else []),
            f"{cost.cost_s * 1e6:,.1f}",
            f"{cost.row_cost_s * 1e6:,.2f}",
            f"{1 / cost.row_cost_s:,.0f}" if cost.cost_s else "",
            f"{alone[cost.lengths] / cost.row_cost_s:,.1f}x" if cost.cost_s else "",
            cost.mode + (f" (best of {cost.n_measured})" if cost.n_measured > 1 else ""),
        )
    return table


def cost_chart(costs: Mapping[str, Any], *, entry: str = _ENTRY) -> Text:
    """Return bars of the time for a row against the batch size, for the longest padded lengths."""
    read = costs_of(costs, entry=entry)
    longest = read[-1].lengths if read else ()
    shown = [cost for cost in read if cost.lengths == longest]
    text = Text("Time for a row (µs) by batch size")
    text.append(f", at length {sizes(longest)}\n" if longest else "\n")
    top_s = max((cost.row_cost_s for cost in shown), default=0.0)
    width = max((len(str(cost.rows)) for cost in shown), default=0)
    for cost in shown:
        text.append(f"{cost.rows:>{width}} ", style="bold")
        text.append(_bar(cost.row_cost_s / top_s if top_s else 0.0), style="cyan")
        text.append(f" {cost.row_cost_s * 1e6:,.2f}\n")
    return text


def _bucket(measurement: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    return tuple(int(size) for size in measurement["lengths"]), int(measurement["rows"])


def _mode(mode: Mapping[str, Any]) -> str:
    threads = int(mode["intra_op_threads"])
    return f"{mode['compiler']}, {mode['executor']}, {threads} thread{'' if threads == 1 else 's'}"


def sizes(lengths: Sequence[int]) -> str:
    """Return padded lengths as text."""
    return "x".join(map(str, lengths))


def _bar(share: float) -> str:
    eighths = max(1, round(share * _BAR_COLUMNS * 8))
    whole, rest = divmod(eighths, 8)
    return _BLOCKS[-1] * whole + (_BLOCKS[rest - 1] if rest else "")
