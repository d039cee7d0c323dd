"""A wide and deep recommender: 26 categories, 13 numbers, a linear part and three dense layers.

Source: H.-T. Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016; the inputs of Criteo's data set.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.workloads.workload import Workload

__all__ = ["RECOMMENDER"]

CATEGORIES = 26
NUMBERS = 13
#: Rows of each category's table; all tables lie one after the other.
TABLE_ROWS = 1_000
DIMENSIONS = 16
LAYERS = (512, 256)


def _initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed=70)
    width = NUMBERS + CATEGORIES * DIMENSIONS
    values = {
        "table": rng.normal(0, 0.3, (CATEGORIES * TABLE_ROWS, DIMENSIONS)),
        "wide": rng.normal(0, 0.3, (CATEGORIES * TABLE_ROWS,)),
    }
    for layer, (n_in, n_out) in enumerate(zip((width, *LAYERS), (*LAYERS, 1), strict=True), start=1):
        values[f"w{layer}"] = rng.normal(0, np.sqrt(2 / n_in), (n_in, n_out))
        values[f"b{layer}"] = rng.normal(0, 0.1, n_out)
    return {name: value.astype(np.float32) for name, value in values.items()}


@functools.cache
def _weights() -> dict[str, tf.Variable]:
    with tf.init_scope():
        return {name: tf.Variable(value, name=name) for name, value in _initial().items()}


def _predict(categories: tf.Tensor, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: categories int32 [26], each below 1,000; numbers [13]; click scalar, a probability."""
    w = _weights()
    rows = categories + tf.range(CATEGORIES) * TABLE_ROWS
    wide = tf.reduce_sum(tf.gather(w["wide"], rows))
    features = tf.concat([numbers, tf.reshape(tf.gather(w["table"], rows), [-1])], 0)
    hidden = tf.nn.relu(tf.tensordot(features, w["w1"], 1) + w["b1"])
    hidden = tf.nn.relu(tf.tensordot(hidden, w["w2"], 1) + w["b2"])
    return {"click": tf.sigmoid((tf.tensordot(hidden, w["w3"], 1) + w["b3"])[0] + wide)}


def _by_hand(categories: tf.Tensor, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
    w = _weights()
    rows = categories + tf.range(CATEGORIES) * TABLE_ROWS
    wide = tf.reduce_sum(tf.gather(w["wide"], rows), 1)
    deep = tf.reshape(tf.gather(w["table"], rows), [-1, CATEGORIES * DIMENSIONS])
    hidden = tf.nn.relu(tf.nn.bias_add(tf.concat([numbers, deep], 1) @ w["w1"], w["b1"]))
    hidden = tf.nn.relu(tf.nn.bias_add(hidden @ w["w2"], w["b2"]))
    return {"click": tf.sigmoid(tf.squeeze(tf.nn.bias_add(hidden @ w["w3"], w["b3"]), 1) + wide)}


def _examples() -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed=71)
    for _ in range(1_000):
        # Few values are frequent and many rare, as in logs of clicks.
        categories = np.minimum(rng.zipf(1.3, CATEGORIES) - 1, TABLE_ROWS - 1)
        yield {"categories": categories.astype(np.int32), "numbers": rng.lognormal(0, 1, NUMBERS).astype(np.float32)}


RECOMMENDER = Workload(
    name="recommender",
    inputs={"categories": tf.TensorSpec([CATEGORIES], tf.int32), "numbers": tf.TensorSpec([NUMBERS], tf.float32)},
    predict=_predict,
    by_hand=_by_hand,
    examples=_examples,
    weights=_initial,
)
