"""A recurrent network over sequences of any length up to 64 steps: a handwritten number, read from left to right.

How to write a model of variable length:

- The input's shape says ``None`` where the length varies, and ``SPEC`` says how long it may get and which scalar
  input is told the true length. Callers send their sequence as it is; the length is filled in for them.
- ``predict`` may be given a longer, padded sequence, so it asks ``length`` and never ``tf.shape(strips)[0]`` when
  to stop. What lies beyond ``length`` must not reach the answer.
- The loop is a plain ``while`` on a tensor. Over many examples it runs until the longest one is through, and those
  that are through already keep their state.
- What doesn't depend on the step before (the inputs' share of the gates) is computed for all steps at once.

The weights are random, with a fixed seed: an encoder that was never trained, of the size of a real one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from models import handwriting

__all__ = ["INPUTS", "SPEC", "examples", "initial_weights", "predict", "weights"]

UNITS = 128
FEATURES = 32
MAX_STEPS = 64

INPUTS = {"strips": tf.TensorSpec([None, FEATURES], tf.float32), "length": tf.TensorSpec([], tf.int32)}
SPEC = {"inputs": {"strips": {"max": MAX_STEPS, "length_input": "length"}}}


def predict(strips: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return eight features of one sequence, from the state after its last step.

    Shapes: strips [steps, 32]; length scalar, at most steps; features [8], between -1 and 1.
    Source: S. Hochreiter and J. Schmidhuber, "Long Short-Term Memory", 1997; forget gates after F. Gers, 2000.
    """
    w = weights()
    from_inputs = tf.matmul(strips, w["inputs"]) + w["bias"]
    hidden = tf.zeros([UNITS])
    cell = tf.zeros([UNITS])
    step = tf.constant(0)
    while step < length:
        gates = from_inputs[step] + tf.tensordot(hidden, w["hidden"], 1)
        keep, write, read, news = tf.split(gates, 4)
        cell = tf.sigmoid(keep) * cell + tf.sigmoid(write) * tf.tanh(news)
        hidden = tf.sigmoid(read) * tf.tanh(cell)
        step += 1
    return {"features": tf.tanh(tf.tensordot(hidden, w["head"], 1))}


def initial_weights() -> dict[str, np.ndarray]:
    """Return the weights as arrays. Gates lie side by side: keep, write, read, news."""
    rng = np.random.default_rng(seed=40)
    bias = np.zeros(4 * UNITS, np.float32)
    bias[:UNITS] = 1.0  # R. Jozefowicz, 2015: start with open forget gates, or long sequences fade
    return {
        "inputs": rng.normal(0, FEATURES**-0.5, (FEATURES, 4 * UNITS)).astype(np.float32),
        "hidden": rng.normal(0, UNITS**-0.5, (UNITS, 4 * UNITS)).astype(np.float32),
        "bias": bias,
        "head": rng.normal(0, UNITS**-0.5, (UNITS, 8)).astype(np.float32),
    }


@functools.cache
def weights() -> dict[str, tf.Variable]:
    """Return the variables, made once and outside any trace."""
    with tf.init_scope():
        return {name: tf.Variable(value, name=name) for name, value in initial_weights().items()}


def examples() -> Iterator[dict[str, Any]]:
    """Yield 1,000 handwritten numbers of 1 to 32 digits, half a digit (8 rows of 4 pixels) at each step.

    Some are cut off in the middle of a digit, so that every length from 1 to 64 occurs.
    """
    rng = np.random.default_rng(seed=41)
    scans = handwriting.images().reshape(-1, 8, 2, 4)
    for _ in range(1_000):
        length = int(rng.integers(1, MAX_STEPS + 1))
        digits = scans[rng.integers(0, len(scans), (length + 1) // 2)]
        strips = digits.transpose(0, 2, 1, 3).reshape(-1, FEATURES)[:length]
        yield {"strips": np.ascontiguousarray(strips), "length": np.int32(length)}
