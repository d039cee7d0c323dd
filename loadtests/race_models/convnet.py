"""Two convolutions and two dense layers over an image of 28 by 28."""

from __future__ import annotations

import tensorflow as tf

from loadtests.race_models.weights import weights_of

__all__ = ["INPUTS", "predict"]

INPUTS = {"x": tf.TensorSpec([28, 28, 1], tf.float32)}


def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: x [28, 28, 1]; y [10], probabilities."""
    w = weights_of("convnet")
    hidden = x[tf.newaxis]
    for kernel, bias in (("k1", "c1"), ("k2", "c2")):
        hidden = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(hidden, w[kernel], 1, "SAME"), w[bias]))
        hidden = tf.nn.max_pool2d(hidden, 2, 2, "VALID")
    flat = tf.reshape(hidden, [7 * 7 * 64])
    flat = tf.nn.relu(tf.linalg.matvec(w["w1"], flat, transpose_a=True) + w["b1"])
    return {"y": tf.nn.softmax(tf.linalg.matvec(w["w2"], flat, transpose_a=True) + w["b2"])}
