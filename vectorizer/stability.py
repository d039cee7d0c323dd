"""Whether an answer means anything: one that the last digits of the input change can't be compared.

The difference of two nearly equal huge numbers, or a sine of one, is made of rounding errors alone: the function gives
another answer for an input that is the same to all but the last digits, and so may a batched kernel, which rounds in
another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from vectorizer.parity import difference
from vectorizer.probes import Probe, as_array
from vectorizer.trace import ExampleFunction

__all__ = ["is_unstable"]

#: Inputs are changed by up to this many units of their last digit: a sum of some dozen terms rounds as much.
_N_ULPS = 4
_N_TRIALS = 3


def is_unstable(function: ExampleFunction, probe: Probe, output: int, tolerance: float) -> bool:
    """Return True if a change of the last digits of the inputs moves the function's own answer beyond tolerance."""
    for nearby in _nearby(probe.example):
        try:
            answer = as_array(function(nearby)[output])
        except tf.errors.OpError:
            return True
        if difference(probe.answers[output], answer, tolerance=tolerance).is_far:
            return True
    return False


def _nearby(example: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    if not any(value.dtype.kind in "fc" for value in example.values()):
        return
    for _ in range(_N_TRIALS):
        yield {name: _moved(value, rng) for name, value in example.items()}


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
