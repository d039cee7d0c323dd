"""Three dense layers over 64 numbers."""

from __future__ import annotations

import tensorflow as tf

from loadtests.race_models.weights import weights_of

__all__ = ["INPUTS", "predict"]

INPUTS = {"x": tf.TensorSpec([64], tf.float32)}


def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: x [64]; y [10], probabilities."""
    w = weights_of("digits_mlp")
    hidden = tf.nn.relu(tf.linalg.matvec(w["w0"], x, transpose_a=True) + w["b0"])
    hidden = tf.nn.relu(tf.linalg.matvec(w["w1"], hidden, transpose_a=True) + w["b1"])
    return {"y": tf.nn.softmax(tf.linalg.matvec(w["w2"], hidden, transpose_a=True) + w["b2"])}
