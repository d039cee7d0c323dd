"""The LSTM over sequences of 1 to 64 steps."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.workloads.workload import Workload
from models import lstm
from vectorizer import Length

__all__ = ["LSTM"]


def _by_hand(strips: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
    """Mask the state of rows that are through. Time comes first, so that a step reads one piece of memory."""
    w = lstm.weights()
    from_inputs = tf.transpose(tf.tensordot(strips, w["inputs"], 1) + w["bias"], [1, 0, 2])
    hidden = tf.zeros([strips.shape[0], lstm.UNITS])
    longest = tf.reduce_max(length)

    def step(at: tf.Tensor, hidden: tf.Tensor, cell: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        keep, write, read, news = tf.split(from_inputs[at] + hidden @ w["hidden"], 4, axis=1)
        new_cell = tf.sigmoid(keep) * cell + tf.sigmoid(write) * tf.tanh(news)
        new_hidden = tf.sigmoid(read) * tf.tanh(new_cell)
        active = (at < length)[:, tf.newaxis]
        return at + 1, tf.where(active, new_hidden, hidden), tf.where(active, new_cell, cell)

    _, hidden, _ = tf.while_loop(lambda at, *_: at < longest, step, (tf.constant(0), hidden, tf.zeros_like(hidden)))
    return {"features": tf.tanh(hidden @ w["head"])}


LSTM = Workload(
    name="lstm",
    inputs=lstm.INPUTS,
    predict=lstm.predict,
    by_hand=_by_hand,
    examples=lstm.examples,
    weights=lstm.initial_weights,
    lengths={"strips": Length(max=lstm.MAX_STEPS, buckets=(lstm.MAX_STEPS,), length_input="length")},
)
