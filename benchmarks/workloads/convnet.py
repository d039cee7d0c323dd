"""The digits network with two convolutions."""

from __future__ import annotations

import tensorflow as tf

from benchmarks.workloads.workload import Workload
from models import digits_convnet

__all__ = ["CONVNET"]


def _by_hand(image: tf.Tensor) -> dict[str, tf.Tensor]:
    w = digits_convnet.weights()
    features = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(image, w["k1"], 1, "SAME"), w["c1"]))
    features = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(features, w["k2"], 1, "SAME"), w["c2"]))
    features = tf.nn.max_pool2d(features, 2, 2, "VALID")
    hidden = tf.nn.relu(tf.nn.bias_add(tf.reshape(features, [-1, 512]) @ w["w1"], w["b1"]))
    return {"probabilities": tf.nn.softmax(tf.nn.bias_add(hidden @ w["w2"], w["b2"]))}


CONVNET = Workload(
    name="convnet",
    inputs=digits_convnet.INPUTS,
    predict=digits_convnet.predict,
    by_hand=_by_hand,
    examples=digits_convnet.examples,
    weights=lambda: {name: variable.numpy() for name, variable in digits_convnet.weights().items()},
)
