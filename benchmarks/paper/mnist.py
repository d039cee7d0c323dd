"""The paper's network for MNIST: gradients and Jacobians of each example.

By all variables but the kernel of the wide layer: its 3.2 million elements would make a batch's answer of some
gigabytes, and reading them out would be what is measured. The mask of the dropout is an input, so that all
contenders drop the same.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from benchmarks.paper.configuration import Configuration, normal, variables

__all__ = ["CONFIGURATIONS"]

HIDDEN = 1024
DROPPED = 0.4


@functools.cache
def _weights() -> dict[str, tf.Variable]:
    return variables(
        {
            "mnist_k1": normal(5, 5, 1, 32, seed=5, scale=0.2),
            "mnist_c1": normal(32, seed=6, scale=0.1),
            "mnist_k2": normal(5, 5, 32, 64, seed=7, scale=0.05),
            "mnist_c2": normal(64, seed=8, scale=0.1),
            "mnist_wide": normal(7 * 7 * 64, HIDDEN, seed=9, scale=0.02),
            "mnist_b1": normal(HIDDEN, seed=10, scale=0.1),
            "mnist_last": normal(HIDDEN, 10, seed=11, scale=0.04),
            "mnist_b2": normal(10, seed=12, scale=0.1),
        }
    )


def _scores(image: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
    w = _weights()
    x = tf.nn.relu(tf.nn.conv2d(image[tf.newaxis], w["mnist_k1"], 1, "SAME") + w["mnist_c1"])
    x = tf.nn.max_pool2d(x, 2, 2, "SAME")
    x = tf.nn.relu(tf.nn.conv2d(x, w["mnist_k2"], 1, "SAME") + w["mnist_c2"])
    x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "SAME"), [7 * 7 * 64])
    x = tf.nn.relu(tf.tensordot(x, w["mnist_wide"], 1) + w["mnist_b1"])
    x = x * tf.cast(kept, tf.float32) / (1 - DROPPED)
    return tf.tensordot(x, w["mnist_last"], 1) + w["mnist_b2"]


def _loss(image: tf.Tensor, kept: tf.Tensor, label: tf.Tensor) -> tf.Tensor:
    return -tf.reduce_sum(tf.one_hot(label, 10) * tf.nn.log_softmax(_scores(image, kept)))


def _batch(n_rows: int) -> Mapping[str, np.ndarray]:
    rng = np.random.default_rng(13)
    return {
        "image": rng.uniform(0, 1, (n_rows, 28, 28, 1)).astype(np.float32),
        "kept": rng.random((n_rows, HIDDEN)) > DROPPED,
    }


def _labelled(n_rows: int) -> Mapping[str, np.ndarray]:
    return {**_batch(n_rows), "label": np.arange(n_rows, dtype=np.int32) % 10}


def _wrt() -> list[tf.Variable]:
    return [value for name, value in _weights().items() if name != "mnist_wide"]


_INPUTS = {"image": tf.TensorSpec([28, 28, 1], tf.float32), "kept": tf.TensorSpec([HIDDEN], tf.bool)}

CONFIGURATIONS = (
    Configuration(
        name="mnist_per_example_grad",
        rows=128,
        inputs={**_INPUTS, "label": tf.TensorSpec([], tf.int32)},
        function=_loss,
        batch=_labelled,
        kind="gradient",
        wrt=_wrt,
    ),
    Configuration(
        name="mnist_per_example_jacobian",
        rows=16,
        inputs=_INPUTS,
        function=_scores,
        batch=_batch,
        kind="jacobian",
        wrt=_wrt,
    ),
)
