"""Whether an answer means anything: one that the last digits of the input change can't be compared.

The difference of two nearly equal huge numbers, or a sine of one, is made of rounding errors alone: the function gives
another answer for an input that is the same to all but the last digits, and so may a batched kernel, which rounds in
another order. And where values are ordered or cast to integers, each of TensorFlow's kernels treats not-a-number in its
own way: relu alone keeps it, fused into the convolution before it makes it 0, and which of them runs is the graph
optimizer's choice.

What is written for batches says by itself what its answers are worth. A network that scales its input to the largest
value that is in it answers silence with its own rounding errors, scaled: alone, and otherwise in a batch of four.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from vectorizer.effects import walk_ops
from vectorizer.parity import difference
from vectorizer.probes import Probe, as_array
from vectorizer.trace import ExampleFunction, named_outputs

__all__ = ["is_unstable", "varies_in_batches"]

#: Inputs are changed by up to this many units of their last digit: a sum of some dozen terms rounds as much.
_N_ULPS = 4
_N_TRIALS = 3


#: Ops whose kernels differ in what they make of not-a-number.
_ORDERING = frozenset(
    {
        "ArgMax",
        "ArgMin",
        "ClipByValue",
        "Elu",
        "InTopKV2",
        "LeakyRelu",
        "Max",
        "MaxPool",
        "MaxPool3D",
        "MaxPoolV2",
        "MaxPoolWithArgmax",
        "Maximum",
        "Min",
        "Minimum",
        "NonMaxSuppressionV3",
        "NonMaxSuppressionV4",
        "NonMaxSuppressionV5",
        "Relu",
        "Relu6",
        "SegmentMax",
        "SegmentMin",
        "Selu",
        "TopKV2",
        "UnsortedSegmentMax",
        "UnsortedSegmentMin",
    }
)


def is_unstable(function: ExampleFunction, probe: Probe, output: int, have: np.ndarray, tolerance: float) -> bool:
    """Return True if an extreme probe's answer says nothing: ``have``, the batch's, need not be the function's.

    That is so if a change of the inputs' last digits moves the function's own answer beyond tolerance, or if values
    that are no finite numbers meet an op that orders or casts them.
    """
    if _is_undefined(function, probe, (probe.answers[output], have)):
        return True
    for nearby in _nearby(probe.example):
        try:
            answer = as_array(function(nearby)[output])
        except tf.errors.OpError:
            return True
        if difference(probe.answers[output], answer, tolerance=tolerance).is_far:
            return True
    return False


def varies_in_batches(function: ExampleFunction, probe: Probe, output: int, rows: int, tolerance: float) -> bool:
    """Return True if a function of batches gives ``probe`` another answer in a batch of itself, ``rows`` times.

    Neighbours can't be the reason, as there are none: its answer hangs on the order in which its kernels round.
    """
    if function.batch is None or rows == 1 or function.batch.batch_size not in (None, rows):
        return False
    batch = {name: tf.constant(np.stack([probe.example[name]] * rows)) for name in function.inputs}
    try:
        results = named_outputs(function.batch.of_batch(batch), function.name)
    except (tf.errors.OpError, ValueError):
        return False
    answers = as_array(list(results.values())[output])
    return any(difference(probe.answers[output], answer, tolerance=tolerance).is_far for answer in answers)


def _is_undefined(function: ExampleFunction, probe: Probe, answers: Sequence[np.ndarray]) -> bool:
    """Infinities count too: their difference is not a number. A cast to integers has limits besides."""
    floats = [value for value in (*probe.example.values(), *answers) if value.dtype.kind in "fcV"]
    is_finite = all(bool(np.isfinite(value).all()) for value in floats)
    return any(
        (op.type in _ORDERING and not is_finite)
        or (op.type == "Cast" and op.inputs[0].dtype.is_floating and op.outputs[0].dtype.is_integer)
        for op in walk_ops(function.graph)
    )


def _nearby(example: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    if not any(value.dtype.kind in "fc" for value in example.values()):
        return
    for size in (0.0, 1.0):
        # Kernels count denormals as zeros in TensorFlow's own threads, and not in the thread of a caller.
        replaced = {name: _without_denormals(value, size) for name, value in example.items()}
        if any(replaced[name] is not value for name, value in example.items()):
            yield replaced
    for _ in range(_N_TRIALS):
        yield {name: _moved(value, rng) for name, value in example.items()}


def _without_denormals(value: np.ndarray, size: float) -> np.ndarray:
    """Return a value whose denormals are ``size`` times the smallest normal number; itself if it has none."""
    if value.dtype.kind != "f":
        return value
    smallest = np.finfo(value.dtype).tiny
    is_denormal = (value != 0) & (np.abs(value) < smallest)
    if not is_denormal.any():
        return value
    replaced: np.ndarray = np.where(is_denormal, np.copysign(smallest * value.dtype.type(size), value), value)
    return replaced


def _moved(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if value.dtype == np.uint8 and value.ndim:  # pixels were rounded when they were taken
        up = np.minimum(rng.integers(0, 2, value.shape), np.iinfo(np.uint8).max - value)
        raised: np.ndarray = value + up.astype(np.uint8)
        return raised
    if value.dtype.kind not in "fc":
        return value
    step = np.finfo(value.dtype).eps * rng.integers(-_N_ULPS, _N_ULPS + 1, value.shape)
    with np.errstate(all="ignore"):
        moved = (value * (1 + step)).astype(value.dtype)
    return np.where(np.isfinite(value), moved, value)
