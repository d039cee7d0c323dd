"""A recurrent network over sequences of up to 64 steps."""

from __future__ import annotations

import tensorflow as tf

from loadtests.race_models.weights import weights_of

__all__ = ["INPUTS", "SPEC", "predict"]

_UNITS = 128

INPUTS = {"x": tf.TensorSpec([None, 32], tf.float32), "length": tf.TensorSpec([], tf.int32)}
SPEC = {"inputs": {"x": {"max": 64, "length_input": "length"}}}


def predict(x: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: x [steps, 32]; length scalar, at most steps; y [8], of the state after the last step."""
    w = weights_of("lstm")
    inputs = tf.matmul(x, w["wx"]) + w["b"]
    hidden = cell = tf.zeros([_UNITS])
    step = 0
    while step < length:
        gates = inputs[step] + tf.linalg.matvec(w["wh"], hidden, transpose_a=True)
        enter, forget, new, leave = tf.split(gates, 4)
        cell = tf.sigmoid(forget) * cell + tf.sigmoid(enter) * tf.tanh(new)
        hidden = tf.sigmoid(leave) * tf.tanh(cell)
        step += 1
    return {"y": tf.linalg.matvec(w["wd"], hidden, transpose_a=True) + w["bd"]}
