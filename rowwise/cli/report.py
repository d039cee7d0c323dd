"""A certificate and measured costs as people read them, from their JSON alone.

The certificate's JSON is that of ``certificate.json``. The costs' is that of ``costs.json``: its ``entries``
map an entry point to one object for each compiled graph and execution mode that was timed: ``rows``,
``lengths``, ``cost_s`` (median seconds of one call, null where the mode failed), ``compiler``, ``executor``,
``intra_op_threads``, and ``chosen``, true for the mode that serves this graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rowwise.errors import BadAnswer

__all__ = ["Cost", "certificate_report", "cost_chart", "cost_table", "costs_of"]

_ENTRY = "predict"
#: Columns of the longest bar: with its labels it fits an 80-column terminal.
_BAR_COLUMNS = 44
#: From one eighth of a column to a whole one.
_BLOCKS = "▏▎▍▌▋▊▉█"
#: Places of one looped op that are printed; the JSON has them all.
_PLACES_SHOWN = 3


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


def certificate_report(certificate: Mapping[str, Any]) -> RenderableType:
    """Return the summary, the ops that run once per row, and the check of every bucket. Errors: BadAnswer."""
    try:
        return Group(*_certificate_parts(certificate))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadAnswer(f"this is no certificate: {error!r}") from error


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
            *([_sizes(cost.lengths)] if with_lengths else []),
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
    text.append(f", at length {_sizes(longest)}\n" if longest else "\n")
    top_s = max((cost.row_cost_s for cost in shown), default=0.0)
    width = max((len(str(cost.rows)) for cost in shown), default=0)
    for cost in shown:
        text.append(f"{cost.rows:>{width}} ", style="bold")
        text.append(_bar(cost.row_cost_s / top_s if top_s else 0.0), style="cyan")
        text.append(f" {cost.row_cost_s * 1e6:,.2f}\n")
    return text


def _certificate_parts(certificate: Mapping[str, Any]) -> Iterator[RenderableType]:
    ops: Sequence[Mapping[str, Any]] = certificate["ops"]
    count = {
        kind: sum(op["count"] for op in ops if op["kind"] == kind) for kind in ("vectorized", "invariant", "looped")
    }
    yield Text.assemble(
        ("Certificate of ", "bold"),
        (str(certificate["function"]), "bold cyan"),
        f"  (TensorFlow {certificate['tensorflow_version']})\n",
        f"{count['vectorized']} ops run once for all rows, {count['invariant']} do not depend on the example, ",
        (f"{count['looped']} run once per row", "red" if count["looped"] else "green"),
        f"\nloops in the graph: {certificate['loops_unbatched']} for one example, "
        f"{certificate['loops_batched']} for a batch\n",
    )
    if count["looped"]:
        yield _looped_table([op for op in ops if op["kind"] == "looped"])
    yield _parity_table(certificate["parity"])
    allowed = ", ".join(f"{dtype} {value:g}" for dtype, value in certificate["tolerance"].items())
    yield Text(f"allowed: {allowed or 'no difference'}, relative to the largest magnitude of a row")
    if certificate.get("n_probes_refused"):
        yield Text(f"{certificate['n_probes_refused']} probe inputs were refused by the function itself and left out")


def _looped_table(looped: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("op", "count", "where", "why", title="Run once per row", title_justify="left", box=None)
    for op in looped:
        places = list(op["where"])
        rest = len(places) - _PLACES_SHOWN
        where = ", ".join(places[:_PLACES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
        table.add_row(Text(op["op"], "red"), str(op["count"]), Text(where), Text(op.get("reason") or ""))
    return table


def _parity_table(parity: Sequence[Mapping[str, Any]]) -> Table:
    with_lengths = any(record["lengths"] for record in parity)
    table = Table(title="Checked against the function", title_justify="left", box=None, header_style="bold")
    for header in [
        "batch",
        *(["length"] if with_lengths else []),
        "examples",
        "difference",
        "relative",
        "ulp",
        "bitwise",
    ]:
        table.add_column(header, justify="right")
    for record in parity:
        outputs = record["outputs"]
        ulps = [output["max_ulp"] for output in outputs if output["max_ulp"] is not None]
        table.add_row(
            str(record["rows"]),
            *([_sizes(record["lengths"])] if with_lengths else []),
            str(record["n_examples"]),
            f"{max((output['max_abs'] for output in outputs), default=0.0):.2g}",
            f"{max((output['max_relative'] for output in outputs), default=0.0):.2g}",
            str(max(ulps)) if ulps else "-",
            "equal" if all(output["bitwise_equal"] for output in outputs) else "",
        )
    return table


def _bucket(measurement: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    return tuple(int(size) for size in measurement["lengths"]), int(measurement["rows"])


def _mode(mode: Mapping[str, Any]) -> str:
    threads = int(mode["intra_op_threads"])
    return f"{mode['compiler']}, {mode['executor']}, {threads} thread{'' if threads == 1 else 's'}"


def _sizes(lengths: Sequence[int]) -> str:
    return "x".join(map(str, lengths))


def _bar(share: float) -> str:
    eighths = max(1, round(share * _BAR_COLUMNS * 8))
    whole, rest = divmod(eighths, 8)
    return _BLOCKS[-1] * whole + (_BLOCKS[rest - 1] if rest else "")
