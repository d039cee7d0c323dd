"""The check that decides whether a batched graph may be served: it must answer as the per-example function does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from vectorizer.certificate import OutputParity, ParityRecord
from vectorizer.errors import ParityError, ProbeError
from vectorizer.lengths import Axis
from vectorizer.parity import compare
from vectorizer.probes import Probe, shown
from vectorizer.trace import ExampleFunction
from vectorizer.vectorized import Bucket, Output, pad_example, shape_in

__all__ = ["RunBatch", "verify_bucket"]

#: Runs one full bucket: inputs by name, ``[rows, *s]`` each -> outputs by name, ``[rows, *t]`` each.
RunBatch = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def verify_bucket(
    function: ExampleFunction,
    axes: Sequence[Axis],
    outputs: Sequence[Output],
    *,
    bucket: Bucket,
    run: RunBatch,
    probes: Sequence[Probe],
    tolerance: float | None,
) -> ParityRecord:
    """Run the probes that fit through a bucket, each in a slot, and compare every row.

    Errors: ParityError naming the output, the worst example and both answers; ProbeError if no probe fits.
    """
    fitting = [
        probe for probe in probes if all(true <= size for true, size in zip(probe.lengths, bucket.lengths, strict=True))
    ]
    if not fitting:
        raise ProbeError(
            f"{function.name}: {bucket} can't be checked, as the function raised on every example that fits it; give "
            "examples that it answers (examples=[...]), or leave that length out of the length buckets"
        )
    n_batches = -(-len(fitting) // bucket.rows)
    reports: dict[str, list[OutputParity]] = {output.name: [] for output in outputs}
    for batch in range(n_batches):
        rows = [fitting[(batch * bucket.rows + slot) % len(fitting)] for slot in range(bucket.rows)]
        feeds = {
            name: np.stack([pad_example(row.example[name], shape_in(name, spec, axes, bucket)) for row in rows])
            for name, spec in function.inputs.items()
        }
        try:
            results = run(feeds)
        except tf.errors.OpError as error:
            raise ParityError(
                f"{function.name}: {bucket} fails on examples that the function answers one by one: {_brief(error)}"
            ) from error
        for index, output in enumerate(outputs):
            array = results[output.name]
            have = [
                output.cut(array[slot, ...], dict(zip((axis.name for axis in axes), row.lengths, strict=True)))
                for slot, row in enumerate(rows)
            ]
            want = [row.answers[index] for row in rows]
            report, bad = compare(output.name, want, have, tolerance=output.tolerance(tolerance))
            if bad is not None:
                raise ParityError(_difference(function, output, bucket, rows[bad], want[bad], have[bad], tolerance))
            reports[output.name].append(report)
    return ParityRecord(
        rows=bucket.rows,
        lengths=bucket.lengths,
        n_examples=min(len(fitting), n_batches * bucket.rows),
        outputs=tuple(_worst(entries) for entries in reports.values()),
    )


def _brief(error: tf.errors.OpError) -> str:
    """Return what TensorFlow says, without the Python frames of the code that built the graph."""
    lines = [line.strip() for line in str(error.message).splitlines()]
    said = [
        line
        for line in lines
        if line and not line.startswith(("File ", "Detected at node", "Graph execution error", "[["))
    ]
    nodes = [line.split()[3] for line in lines if line.startswith("Detected at node ")]
    where = f" (at {nodes[0]})" if nodes else ""
    return f"{type(error).__name__}: {' '.join(said[:4])}{where}"


def _worst(entries: Sequence[OutputParity]) -> OutputParity:
    ulps = [entry.max_ulp for entry in entries if entry.max_ulp is not None]
    return OutputParity(
        name=entries[0].name,
        max_abs=max(entry.max_abs for entry in entries),
        max_relative=max(entry.max_relative for entry in entries),
        max_ulp=max(ulps) if len(ulps) == len(entries) else None,
        bitwise_equal=all(entry.bitwise_equal for entry in entries),
    )


def _difference(
    function: ExampleFunction,
    output: Output,
    bucket: Bucket,
    probe: Probe,
    want: np.ndarray,
    have: np.ndarray,
    tolerance: float | None,
) -> str:
    return (
        f"{function.name}: {bucket} answers otherwise than the function itself. Output {output.name!r} of the "
        f"example {shown(probe.example)}: expected {np.array2string(want, threshold=8, edgeitems=3)} of shape "
        f"{want.shape}, got {np.array2string(have, threshold=8, edgeitems=3)} of shape {have.shape} "
        f"(allowed: {output.tolerance(tolerance):g} of the largest magnitude). If the result depends on padding, "
        "use the true length (length_input) in the function"
    )
