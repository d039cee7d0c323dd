"""Greedy decoding: a GRU writes token after token until the end token, or 24 of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.workloads.workload import Workload

__all__ = ["GREEDY_DECODER"]

MAX_TOKENS = 24
VOCABULARY = 256
WIDTH = 64
UNITS = 128
END = 0
START = 1
#: The end token's score rises by this with each step: random weights alone would hardly ever end a text.
IMPATIENCE = 0.35


def _initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed=90)
    values = {
        "words": rng.normal(0, 1, (VOCABULARY, WIDTH)),
        "inputs": rng.normal(0, WIDTH**-0.5, (WIDTH, 3 * UNITS)),
        "hidden": rng.normal(0, 1.5 * UNITS**-0.5, (UNITS, 3 * UNITS)),
        "bias": np.zeros(3 * UNITS),
        "head": rng.normal(0, 3 * UNITS**-0.5, (UNITS, VOCABULARY)),
    }
    return {name: value.astype(np.float32) for name, value in values.items()}


@functools.cache
def _weights() -> dict[str, tf.Variable]:
    with tf.init_scope():
        return {name: tf.Variable(value, name=name) for name, value in _initial().items()}


def _gru(from_inputs: tf.Tensor, from_hidden: tf.Tensor, hidden: tf.Tensor) -> tf.Tensor:
    reset_x, update_x, news_x = tf.split(from_inputs, 3, axis=-1)
    reset_h, update_h, news_h = tf.split(from_hidden, 3, axis=-1)
    update = tf.sigmoid(update_x + update_h)
    news = tf.tanh(news_x + tf.sigmoid(reset_x + reset_h) * news_h)
    return update * hidden + (1 - update) * news


def _predict(context: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: context [128], the first state; tokens int32 [24], 0 from the end on; n_tokens scalar."""
    w = _weights()
    is_end = tf.one_hot(END, VOCABULARY)
    texts = tf.TensorArray(tf.int32, size=MAX_TOKENS, element_shape=[])
    hidden = context
    token = tf.constant(START)
    step = tf.constant(0)
    while token != END and step < MAX_TOKENS:
        from_inputs = tf.tensordot(tf.gather(w["words"], token), w["inputs"], 1) + w["bias"]
        hidden = _gru(from_inputs, tf.tensordot(hidden, w["hidden"], 1), hidden)
        scores = tf.tensordot(hidden, w["head"], 1) + is_end * (tf.cast(step, tf.float32) * IMPATIENCE)
        token = tf.argmax(scores, output_type=tf.int32)
        texts = texts.write(step, token)
        step += 1
    return {"tokens": texts.stack(), "n_tokens": step}


def _by_hand(context: tf.Tensor) -> dict[str, tf.Tensor]:
    """Rows that have ended go on and write the end token, which is what stands there anyhow."""
    w = _weights()
    n_rows = context.shape[0]
    is_end = tf.one_hot(END, VOCABULARY)

    def step(at: tf.Tensor, active: tf.Tensor, token: tf.Tensor, hidden: tf.Tensor, texts: Any, n: tf.Tensor) -> Any:
        from_inputs = tf.nn.bias_add(tf.gather(w["words"], token) @ w["inputs"], w["bias"])
        hidden = _gru(from_inputs, hidden @ w["hidden"], hidden)
        scores = hidden @ w["head"] + is_end * (tf.cast(at, tf.float32) * IMPATIENCE)
        token = tf.where(active, tf.argmax(scores, 1, output_type=tf.int32), END)
        return at + 1, active & (token != END), token, hidden, texts.write(at, token), n + tf.cast(active, tf.int32)

    *_, texts, n_tokens = tf.while_loop(
        lambda at, active, *_: tf.reduce_any(active) & (at < MAX_TOKENS),
        step,
        (
            tf.constant(0),
            tf.ones([n_rows], tf.bool),
            tf.fill([n_rows], START),
            context,
            tf.TensorArray(tf.int32, size=MAX_TOKENS, element_shape=[n_rows]),
            tf.zeros([n_rows], tf.int32),
        ),
    )
    return {"tokens": tf.transpose(texts.stack()), "n_tokens": n_tokens}


def _examples() -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed=91)
    for _ in range(1_000):
        yield {"context": rng.normal(0, 1, UNITS).astype(np.float32)}


GREEDY_DECODER = Workload(
    name="greedy_decoder",
    inputs={"context": tf.TensorSpec([UNITS], tf.float32)},
    predict=_predict,
    by_hand=_by_hand,
    examples=_examples,
    weights=_initial,
)
