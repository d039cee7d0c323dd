"""What the paper maps over rows without derivatives: sums, products, loops whose lengths differ."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from benchmarks.paper.configuration import Configuration, normal, variables

__all__ = ["CONFIGURATIONS"]

STATE = 512
MAX_STEPS = 16


@functools.cache
def _weights() -> dict[str, tf.Variable]:
    return variables(
        {
            "matrix": normal(1000, 1000, seed=30, scale=1000**-0.5),
            "rnn": normal(2 * STATE, STATE, seed=31, scale=(2 * STATE) ** -0.5),
        }
    )


def _product(x: tf.Tensor) -> tf.Tensor:
    return tf.tensordot(x, _weights()["matrix"], 1)


def _count(n: tf.Tensor) -> tf.Tensor:
    at = tf.constant(0)
    total = tf.constant(0)
    while at < n:
        total += n
        at += 1
    return total


def _count_by_hand(n: tf.Tensor) -> tf.Tensor:
    _, total = tf.while_loop(
        lambda at, _: at < tf.reduce_max(n),
        lambda at, total: (at + 1, tf.where(at < n, total + n, total)),
        (tf.constant(0), tf.zeros_like(n)),
    )
    return total


def _rnn(x: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    state = tf.zeros([STATE])
    at = tf.constant(0)
    while at < length:
        state = tf.tanh(tf.tensordot(tf.concat([x[at], state], 0), _weights()["rnn"], 1))
        at += 1
    return state


def _rnn_by_hand(x: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
    steps = tf.transpose(x, [1, 0, 2])

    def step(at: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        new = tf.tanh(tf.concat([steps[at], state], 1) @ _weights()["rnn"])
        return at + 1, tf.where((at < length)[:, tf.newaxis], new, state)

    start = (tf.constant(0), tf.zeros([x.shape[0], STATE]))
    return tf.while_loop(lambda at, _: at < tf.reduce_max(length), step, start)[1]


def _vectors(n_rows: int) -> Mapping[str, np.ndarray]:
    return {"x": normal(n_rows, 1000, seed=32)}


def _pairs(n_rows: int) -> Mapping[str, np.ndarray]:
    return {"x": normal(n_rows, 1000, seed=32), "y": normal(n_rows, 1000, seed=33)}


def _sequences(n_rows: int) -> Mapping[str, np.ndarray]:
    lengths = np.random.default_rng(34).integers(1, MAX_STEPS + 1, n_rows).astype(np.int32)
    return {"x": normal(n_rows, MAX_STEPS, STATE, seed=35), "length": lengths}


_VECTOR = tf.TensorSpec([1000], tf.float32)
_NUMBER = tf.TensorSpec([], tf.int32)

CONFIGURATIONS = (
    Configuration(
        name="add",
        rows=256,
        inputs={"x": _VECTOR, "y": _VECTOR},
        function=lambda x, y: x + y,
        batch=_pairs,
        by_hand=lambda x, y: x + y,
    ),
    Configuration(
        name="matmul",
        rows=1024,
        inputs={"x": _VECTOR},
        function=_product,
        batch=_vectors,
        by_hand=lambda x: x @ _weights()["matrix"],
    ),
    Configuration(
        name="map_fn",
        rows=256,
        inputs={"x": _VECTOR},
        function=lambda x: x * x,
        batch=_vectors,
        by_hand=lambda x: x * x,
    ),
    Configuration(
        name="basic_while",
        rows=50,
        inputs={"n": _NUMBER},
        function=_count,
        batch=lambda n_rows: {"n": np.arange(n_rows, dtype=np.int32)},
        by_hand=_count_by_hand,
    ),
    Configuration(
        name="dynamic_rnn",
        rows=128,
        inputs={"x": tf.TensorSpec([MAX_STEPS, STATE], tf.float32), "length": _NUMBER},
        function=_rnn,
        batch=_sequences,
        by_hand=_rnn_by_hand,
    ),
)
