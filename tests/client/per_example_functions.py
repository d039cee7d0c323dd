"""Per-example functions of the kinds that people register, with what they read kept where people keep it."""

from __future__ import annotations

import tensorflow as tf

import rowwise

WEIGHTS = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name="weights")
WORDS = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer([b"one", b"two"], tf.constant([1, 2], tf.int64)), default_value=-1
)

INPUTS = {"sequence": tf.TensorSpec([None], tf.float32), "length": tf.TensorSpec([], tf.int32)}
SPEC = {"inputs": {"sequence": {"max": 16, "length_input": "length"}}, "max_batch": 8}


def predict(sequence: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
    """Sum the true part of a sequence, however it is padded."""
    return {"total": tf.reduce_sum(sequence[:length])}


@rowwise.example_model(inputs={"x": {"dtype": "float32", "shape": [2]}}, max_batch=4)
def halve_until_small(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Halve the larger of a vector's sums until it is under one; count the steps."""
    value = tf.reduce_sum(tf.linalg.matvec(WEIGHTS, x))
    if value < 0.0:
        value = -value
    steps = tf.constant(0)
    while value >= 1.0:
        value = value / 2.0
        steps += 1
    return value, steps


def word_number(word: tf.Tensor) -> tf.Tensor:
    """Look a word up."""
    return _looked_up(word)


def _looked_up(word: tf.Tensor) -> tf.Tensor:
    return WORDS.lookup(word)
