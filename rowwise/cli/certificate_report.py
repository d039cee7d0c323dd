"""A certificate as people read it, from its JSON alone, which is that of ``certificate.json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rowwise.cli.report import sizes
from rowwise.errors import BadAnswer

__all__ = ["certificate_report"]

#: Places of one looped op that are printed; the JSON has them all.
_PLACES_SHOWN = 3
#: Who vectorized an op, as a reader calls it.
_BY = {"pfor": "TensorFlow", "rowwise": "Rowwise", "caller": "your converter"}


def certificate_report(certificate: Mapping[str, Any]) -> RenderableType:
    """Return the summary, the ops that run once per row, and the check of every bucket. Errors: BadAnswer."""
    try:
        return Group(*_certificate_parts(certificate))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadAnswer(f"this is no certificate: {error!r}") from error


def _certificate_parts(certificate: Mapping[str, Any]) -> Iterator[RenderableType]:
    ops: Sequence[Mapping[str, Any]] = certificate["ops"]
    kinds = ("vectorized", "invariant", "looped", "own_batch")
    count = {kind: sum(op["count"] for op in ops if op["kind"] == kind) for kind in kinds}
    yield Text.assemble(
        ("Certificate of ", "bold"),
        (str(certificate["function"]), "bold cyan"),
        f"  (TensorFlow {certificate['tensorflow_version']})\n",
        f"{count['vectorized']} ops run once for all rows, {count['invariant']} do not depend on the example, ",
        (f"{count['looped']} run once per row", "red" if count["looped"] else "green"),
        f"\nloops in the graph: {certificate['loops_unbatched']} for one example, "
        f"{certificate['loops_batched']} for a batch\n",
    )
    if count["own_batch"]:
        yield Text(
            f"{count['own_batch']} ops run as the model itself takes a batch: not all of them can be vectorized\n"
        )
    yield _ops_table([op for op in ops if op["kind"] != "invariant"])
    looped = [op for op in ops if op["kind"] == "looped"]
    if looped:
        yield _looped_table(looped)
    yield _parity_table(certificate["parity"])
    allowed = ", ".join(f"{dtype} {value:g}" for dtype, value in certificate["tolerance"].items())
    yield Text(f"allowed: {allowed or 'no difference'}, relative to the largest magnitude of a row")
    if certificate.get("n_probes_refused"):
        yield Text(f"{certificate['n_probes_refused']} probe inputs were refused by the function itself and left out")
    yield from _findings(certificate)


def _findings(certificate: Mapping[str, Any]) -> Iterator[RenderableType]:
    groups = [group for group in certificate.get("bitwise_groups", ()) if len(group) > 1]
    if groups:
        shown = "; ".join(", ".join(sizes(bucket) for bucket in group) for group in groups)
        yield Text(f"buckets that answer with the same bits: {shown}")
    for each in certificate.get("invariant", ()):
        at = f" at length {sizes(each['lengths'])}" if each["lengths"] else ""
        rows = ", ".join(map(str, each["rows"])) or "nothing"
        yield Text(f"invariant mode{at}: served from {rows}, at {each['throughput_share']:.0%} of the throughput")
    raising = [op for op in certificate["ops"] if op.get("can_raise")]
    if raising:
        yield Text(
            "can fail on a value of a row, which then fails alone: "
            + ", ".join(f"{op['op']} ({', '.join(op['where'][:1])})" for op in raising)
        )
    for example in certificate.get("probes", {}).get("unending", ()):
        yield Text(f"the function does not end on {example}: bound its loops", "yellow")


def _ops_table(ops: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title="Ops that depend on the example", title_justify="left", box=None, header_style="bold")
    table.add_column("op")
    table.add_column("count", justify="right")
    for header in ("runs", "vectorized by", "where"):
        table.add_column(header)
    for op in ops:
        is_looped = op["kind"] == "looped"
        runs = Text("once per row", "red") if is_looped else Text("once", "green")
        by = "-" if is_looped else _BY.get(op.get("converter") or "", "-")
        table.add_row(op["op"], str(op["count"]), runs, by, Text(_places(op)))
    return table


def _looped_table(looped: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("op", "why", "instead", title="Run once per row", title_justify="left", box=None)
    for op in looped:
        table.add_row(Text(op["op"], "red"), Text(op.get("reason") or ""), Text(op.get("fix") or ""))
    return table


def _places(op: Mapping[str, Any]) -> str:
    places = list(op["where"])
    rest = len(places) - _PLACES_SHOWN
    return ", ".join(places[:_PLACES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


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
        *(["padding"] if with_lengths else []),
    ]:
        table.add_column(header, justify="right")
    for record in parity:
        outputs = record["outputs"]
        ulps = [output["max_ulp"] for output in outputs if output["max_ulp"] is not None]
        table.add_row(
            str(record["rows"]),
            *([sizes(record["lengths"])] if with_lengths else []),
            str(record["n_examples"]),
            f"{max((output['max_abs'] for output in outputs), default=0.0):.2g}",
            f"{max((output['max_relative'] for output in outputs), default=0.0):.2g}",
            str(max(ulps)) if ulps else "-",
            "equal" if all(output["bitwise_equal"] for output in outputs) else "",
            *([record.get("padding", "")] if with_lengths else []),
        )
    return table
