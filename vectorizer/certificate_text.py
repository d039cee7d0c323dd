"""A certificate as text, from its JSON alone: what runs how, what to change, and how closely each bucket agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["certificate_text"]


def certificate_text(certificate: Mapping[str, Any]) -> str:
    """Return text of a few short tables, for a terminal or a log."""
    return "\n".join(_lines(certificate)) + "\n"


def _lines(certificate: Mapping[str, Any]) -> Iterator[str]:
    ops: Sequence[Mapping[str, Any]] = certificate["ops"]
    summary = certificate["summary"]
    yield f"Certificate of {certificate['function']} (TensorFlow {certificate['tensorflow_version']})"
    yield (
        f"{summary['vectorized']} ops run once for all rows, {summary['invariant']} do not depend on the example, "
        f"{summary['looped']} run once for each row"
    )
    if summary.get("own_batch"):
        yield f"{summary['own_batch']} run as the model itself takes a batch, as not all of them can be vectorized"
    yield (
        f"loops in the graph: {certificate['loops_unbatched']} for one example, {certificate['loops_batched']} for a "
        "batch"
    )
    yield from _about_xla(certificate)
    yield ""
    yield from _table(
        ("op", "runs", "by", "count", "where"),
        [(op["op"], op["kind"], op["converter"] or "-", op["count"], ", ".join(op["where"][:2])) for op in ops],
    )
    for op in ops:
        if op["kind"] == "looped":
            yield f"\n{op['op']} runs once for each row: {op['reason']}\n  instead: {op['fix']}"
    raising = [f"{op['op']} ({', '.join(op['where'][:2])})" for op in ops if op["can_raise"]]
    if raising:
        yield f"\nfail on some value of a row: {', '.join(raising)}"
    yield ""
    yield from _parity(certificate)


def _about_xla(certificate: Mapping[str, Any]) -> Iterator[str]:
    # Certificates of before do not say.
    if not certificate.get("sizes_known", True):
        yield (
            "XLA can't compile it, as a size in it is known only when it runs: of a result, or of what a loop keeps "
            "for its gradient (there a bound that can be seen helps: tf.range(tf.minimum(n, 64)))"
        )
    elif certificate.get("not_for_xla"):
        yield f"not compiled by XLA, which drops or computes otherwise: {', '.join(certificate['not_for_xla'])}"
    elif certificate["loops_batched"]:
        yield "all sizes in its loops are known beforehand, so that XLA can compile it"


def _parity(certificate: Mapping[str, Any]) -> Iterator[str]:
    rows = []
    for record in certificate["parity"]:
        outputs = record["outputs"]
        ulps = [output["max_ulp"] for output in outputs if output["max_ulp"] is not None]
        rows.append(
            (
                "x".join(map(str, (record["rows"], *record["lengths"]))),
                record["n_examples"],
                f"{max((output['max_abs'] for output in outputs), default=0.0):.2g}",
                f"{max((output['max_relative'] for output in outputs), default=0.0):.2g}",
                max(ulps) if ulps else "-",
                "equal" if all(output["bitwise_equal"] for output in outputs) else "-",
                record["padding"],
            )
        )
    yield from _table(("bucket", "examples", "difference", "relative", "ulp", "bits", "padding"), rows)
    worst = max(
        (output for record in certificate["parity"] for output in record["outputs"] if output["worst"]),
        key=lambda output: output["max_relative"],
        default=None,
    )
    if worst is not None:
        yield f"\nlargest difference: output {worst['name']!r} {worst['worst']}"
    groups = ["{" + ", ".join("x".join(map(str, bucket)) for bucket in group) + "}" for group in _shared(certificate)]
    if groups:
        yield f"\nbuckets that answer with the same bits: {' '.join(groups)}"
    for example in certificate["probes"]["unending"]:
        yield f"\nthe function does not end on {example}: bound its loops"


def _shared(certificate: Mapping[str, Any]) -> list[Any]:
    return [group for group in certificate["bitwise_groups"] if len(group) > 1]


def _table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    cells = [[str(value) for value in row] for row in (headers, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    for row in cells:
        yield "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
