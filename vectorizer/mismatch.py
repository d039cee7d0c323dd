"""Saying how a bucket's answer differs from the function's, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from vectorizer.errors import ParityError
from vectorizer.lengths import Axis
from vectorizer.parity import Difference, difference
from vectorizer.probe_batches import stack_probes
from vectorizer.probes import Probe, as_array, shown
from vectorizer.trace import ExampleFunction
from vectorizer.vectorized import Bucket, Output

__all__ = ["Mismatch", "fails", "mismatch_message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One row's answer for one output that is not the function's."""

    output: Output
    probe: Probe
    want: np.ndarray
    have: np.ndarray
    difference: Difference

    def shown(self) -> str:
        """Return the example and both answers."""
        label = f" ({self.probe.label})" if self.probe.label else ""
        return (
            f"of the example {shown(self.probe.example)}{label}: expected {_array(self.want)} of shape "
            f"{self.want.shape}, got {_array(self.have)} of shape {self.have.shape}"
        )


def mismatch_message(
    function: ExampleFunction, axes: Sequence[Axis], bucket: Bucket, worst: Mismatch, tolerance: float | None
) -> str:
    """Return the message of the refusal: what was compared, the worst example, and the next step."""
    allowed = f"(allowed: {worst.output.tolerance(tolerance):g} of the largest magnitude)"
    if _follows_padding(function, axes, bucket, worst):
        lengths = ", ".join(
            f"{axis.name} {true} padded to {padded}"
            for axis, true, padded in zip(axes, worst.probe.lengths, bucket.lengths, strict=True)
        )
        told = [axis.length_input for axis in axes if axis.length_input]
        step = (
            f"use {' and '.join(map(repr, told))} in the function, for example in tf.sequence_mask"
            if told
            else "take the true length as an input (lengths={'x': Length(..., length_input='n')}), mask the rest"
        )
        return (
            f"{function.name}: {bucket} answers otherwise than the function itself. Output {worst.output.name!r} "
            f"depends on padding: {worst.shown()} with {lengths} {allowed}. Next step: {step}"
        )
    return (
        f"{function.name}: {bucket} answers otherwise than the function itself. Output {worst.output.name!r} "
        f"{worst.shown()} {allowed}. An op was vectorized wrongly, or the function's answer hangs on rounding: compare "
        "the ops in it one by one, and leave out of it what is not continuous (equality of floats, casts to integers)"
    )


def fails(function: ExampleFunction, bucket: Bucket, error: tf.errors.OpError) -> ParityError:
    """Return the refusal of a bucket that raises on examples that the function answers."""
    return ParityError(
        f"{function.name}: {bucket} fails on examples that the function answers one by one: {_brief(error)}"
    )


def _follows_padding(function: ExampleFunction, axes: Sequence[Axis], bucket: Bucket, worst: Mismatch) -> bool:
    """Return True if the function itself gives the bucket's answer when its example is padded."""
    if worst.probe.lengths == bucket.lengths or not axes:
        return False
    padded = stack_probes(function.inputs, axes, Bucket(rows=1, lengths=bucket.lengths), [worst.probe])
    try:
        answers = function({name: value[0] for name, value in padded.items()})
    except (tf.errors.OpError, ValueError):
        return False
    lengths = dict(zip((axis.name for axis in axes), worst.probe.lengths, strict=True))
    answer = worst.output.cut(as_array(answers[function.output_names.index(worst.output.name)]), lengths)
    return not difference(answer, worst.have, tolerance=1e-3).is_far


def _array(value: np.ndarray) -> str:
    return np.array2string(value, threshold=8, edgeitems=3)


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
