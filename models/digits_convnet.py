"""The same digits, read by a convolutional network that sees the image as 8 rows of 8 pixels with one channel.

TensorFlow's convolutions insist on a batch dimension. A per-example model gives them one of size 1 with
``image[tf.newaxis]`` and takes it off at the end: over many examples it disappears, and the convolution runs once
for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from models import handwriting
from models.training import fit, kept

__all__ = ["INPUTS", "examples", "network", "predict", "weights"]

INPUTS = {"image": tf.TensorSpec([8, 8, 1], tf.float32)}


def predict(image: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the probability of each digit for one scan.

    Shapes: image [8, 8, 1], from 0 (paper) to 1 (ink); probabilities [10].
    """
    return {"probabilities": tf.nn.softmax(network(weights(), image))}


def network(weights: Mapping[str, tf.Tensor], image: tf.Tensor) -> tf.Tensor:
    """Return the ten scores of one image: two 3x3 convolutions, 2x2 maxima, two dense layers."""
    features = image[tf.newaxis]
    features = tf.nn.relu(tf.nn.conv2d(features, weights["k1"], 1, "SAME") + weights["c1"])
    features = tf.nn.relu(tf.nn.conv2d(features, weights["k2"], 1, "SAME") + weights["c2"])
    features = tf.nn.max_pool2d(features, 2, 2, "VALID")
    hidden = tf.nn.relu(tf.tensordot(tf.reshape(features, [512]), weights["w1"], 1) + weights["b1"])
    return tf.tensordot(hidden, weights["w2"], 1) + weights["b2"]


@functools.cache
def weights() -> dict[str, tf.Variable]:
    """Return the trained weights, trained in some seconds when no run before has kept them."""
    with tf.init_scope():
        return {name: tf.Variable(value, name=name) for name, value in kept("digits-convnet-1", _train).items()}


def examples() -> Iterator[dict[str, Any]]:
    """Yield all 1,797 scans, in the order of ``handwriting.labels()``."""
    for image in handwriting.images():
        yield {"image": image.reshape(8, 8, 1)}


def _train() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed=30)

    def he(*shape: int) -> np.ndarray:
        return rng.normal(0.0, np.sqrt(2 / np.prod(shape[:-1])), shape).astype(np.float32)

    start = {
        "k1": he(3, 3, 1, 16),
        "c1": np.zeros(16, np.float32),
        "k2": he(3, 3, 16, 32),
        "c2": np.zeros(32, np.float32),
        "w1": he(512, 64),
        "b1": np.zeros(64, np.float32),
        "w2": he(64, 10),
        "b2": np.zeros(10, np.float32),
    }
    train, _ = handwriting.split()
    images = handwriting.images()[train].reshape(-1, 8, 8, 1)
    return fit(network, start, images, handwriting.labels()[train], epochs=12, seed=31)
