"""Example models as an engineer would batch them by hand: the bar for the vectorizer.

Each takes the same inputs as its per-example function, with a leading dimension, and shares its weights.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from models import digits, digits_convnet, embedding, lstm

__all__ = ["BY_HAND"]

Batched = Callable[..., dict[str, tf.Tensor]]


def digits_by_hand(image: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: image [n, 64]; probabilities [n, 10]."""
    w = digits.weights()
    hidden = tf.nn.relu(image @ w["w1"] + w["b1"])
    hidden = tf.nn.relu(hidden @ w["w2"] + w["b2"])
    return {"probabilities": tf.nn.softmax(hidden @ w["w3"] + w["b3"])}


def convnet_by_hand(image: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: image [n, 8, 8, 1]; probabilities [n, 10]."""
    w = digits_convnet.weights()
    features = tf.nn.relu(tf.nn.conv2d(image, w["k1"], 1, "SAME") + w["c1"])
    features = tf.nn.relu(tf.nn.conv2d(features, w["k2"], 1, "SAME") + w["c2"])
    features = tf.nn.max_pool2d(features, 2, 2, "VALID")
    hidden = tf.nn.relu(tf.reshape(features, [-1, 512]) @ w["w1"] + w["b1"])
    return {"probabilities": tf.nn.softmax(hidden @ w["w2"] + w["b2"])}


def lstm_by_hand(strips: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
    """Mask the state of rows that are through. Shapes: strips [n, steps, 32]; length [n]; features [n, 8]."""
    w = lstm.weights()
    from_inputs = tf.transpose(tf.einsum("nsf,fu->nsu", strips, w["inputs"]) + w["bias"], [1, 0, 2])
    hidden = tf.zeros([tf.shape(strips)[0], w["hidden"].shape[0]])
    longest = tf.reduce_max(length)

    def step(at: tf.Tensor, hidden: tf.Tensor, cell: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        keep, write, read, news = tf.split(from_inputs[at] + hidden @ w["hidden"], 4, axis=1)
        new_cell = tf.sigmoid(keep) * cell + tf.sigmoid(write) * tf.tanh(news)
        new_hidden = tf.sigmoid(read) * tf.tanh(new_cell)
        active = (at < length)[:, tf.newaxis]
        return at + 1, tf.where(active, new_hidden, hidden), tf.where(active, new_cell, cell)

    _, hidden, _ = tf.while_loop(lambda at, *_: at < longest, step, (tf.constant(0), hidden, tf.zeros_like(hidden)))
    return {"features": tf.tanh(hidden @ w["head"])}


def embedding_by_hand(tokens: tf.Tensor, length: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: tokens [n, words]; length [n]; embedding [n, 128]."""
    rows = tf.nn.embedding_lookup(embedding.table(), tf.math.floormod(tokens, embedding.ROWS))
    counted = tf.cast(tf.sequence_mask(length, tf.shape(tokens)[1]), tf.float32)
    mean = tf.einsum("nw,nwd->nd", counted, rows) / tf.cast(tf.maximum(length, 1), tf.float32)[:, tf.newaxis]
    square = tf.reduce_sum(mean * mean, axis=1, keepdims=True)
    return {"embedding": mean * tf.math.rsqrt(tf.maximum(square, 1e-12))}


#: By the name of the model's module. A solver whose rows stop at different steps has no obvious batched form.
BY_HAND: dict[str, Batched] = {
    "digits": digits_by_hand,
    "digits_convnet": convnet_by_hand,
    "embedding": embedding_by_hand,
    "lstm": lstm_by_hand,
}
