"""The digits network: three dense layers, 64-256-256-10."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.workloads.workload import Workload
from models import digits

__all__ = ["MLP"]


def _by_hand(image: tf.Tensor) -> dict[str, tf.Tensor]:
    w = digits.weights()
    hidden = tf.nn.relu(tf.nn.bias_add(image @ w["w1"], w["b1"]))
    hidden = tf.nn.relu(tf.nn.bias_add(hidden @ w["w2"], w["b2"]))
    return {"probabilities": tf.nn.softmax(tf.nn.bias_add(hidden @ w["w3"], w["b3"]))}


MLP = Workload(
    name="mlp",
    inputs=digits.INPUTS,
    predict=digits.predict,
    by_hand=_by_hand,
    examples=digits.examples,
    weights=lambda: {name: variable.numpy() for name, variable in digits.weights().items()},
)
