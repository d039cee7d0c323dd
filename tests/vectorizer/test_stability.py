"""Which extreme probes say nothing about a batched graph."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from vectorizer.probes import Probe, ProbeKind, as_array
from vectorizer.stability import is_unstable
from vectorizer.trace import trace_example


def test_whether_a_denormal_is_positive_says_nothing() -> None:
    function = trace_example(lambda x: tf.boolean_mask(x, x > 0), {"x": tf.TensorSpec([3])})

    def unstable(values: list[float]) -> bool:
        example = {"x": np.array(values, np.float32)}
        answers = tuple(map(as_array, function(example)))
        probe = Probe(example=example, lengths=(), answers=answers, kind=ProbeKind.EXTREME)
        return is_unstable(function, probe, 0, example["x"], 1e-4)

    assert unstable([1e-45, 1e-45, 1e-45])
    assert not unstable([1.0, -1.0, 2.0])
