"""Which digit is this? A small neural network on scikit-learn's 8x8 scans of handwritten digits.

How to write a per-example model, by example:

- ``predict`` takes one image, 64 numbers, and thinks of nothing else: no batch dimension, no ``x.shape[0]``, no
  ``axis=1`` that means "the other axis". It also runs as it stands, in a shell: ``predict(image)``.
- ``tf.tensordot(vector, matrix, 1)`` is the product to use: over many examples it becomes one matrix product.
- Weights are variables, made once and outside the trace (``tf.init_scope`` and ``functools.cache``), so that all
  compiled batch sizes share them. A variable made inside ``predict`` would be made anew at each trace.
- The answer is a dict of named outputs. Taking the most probable digit is left to the caller: ten floats say more.
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

INPUTS = {"image": tf.TensorSpec([64], tf.float32)}


def predict(image: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the probability of each digit for one scan.

    Shapes: image [64], row by row, from 0 (paper) to 1 (ink); probabilities [10].
    """
    return {"probabilities": tf.nn.softmax(network(weights(), image))}


def network(weights: Mapping[str, tf.Tensor], image: tf.Tensor) -> tf.Tensor:
    """Return the ten scores of one image: three layers, 64-256-256-10."""
    hidden = tf.nn.relu(tf.tensordot(image, weights["w1"], 1) + weights["b1"])
    hidden = tf.nn.relu(tf.tensordot(hidden, weights["w2"], 1) + weights["b2"])
    return tf.tensordot(hidden, weights["w3"], 1) + weights["b3"]


@functools.cache
def weights() -> dict[str, tf.Variable]:
    """Return the trained weights, trained in a few seconds when no run before has kept them."""
    with tf.init_scope():
        return {name: tf.Variable(value, name=name) for name, value in kept("digits-1", _train).items()}


def examples() -> Iterator[dict[str, Any]]:
    """Yield all 1,797 scans, in the order of ``handwriting.labels()``."""
    for image in handwriting.images():
        yield {"image": image}


def _train() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed=20)
    start: dict[str, np.ndarray] = {}
    for layer, (n_in, n_out) in enumerate([(64, 256), (256, 256), (256, 10)], start=1):
        # He et al. 2015: this variance keeps the signal's size through relu layers.
        start[f"w{layer}"] = rng.normal(0.0, np.sqrt(2 / n_in), (n_in, n_out)).astype(np.float32)
        start[f"b{layer}"] = np.zeros(n_out, np.float32)
    train, _ = handwriting.split()
    return fit(network, start, handwriting.images()[train], handwriting.labels()[train], epochs=40, seed=21)
