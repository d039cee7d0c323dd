"""From JPEG bytes to probabilities: decoding runs once for each row, resizing and the network for all rows at once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.workloads.workload import Workload

__all__ = ["JPEG_PIPELINE"]

#: Pixels of the pictures as they come, and as the network sees them.
TAKEN = 128
SEEN = 64
CHANNELS = (3, 16, 32, 64)
CLASSES = 10


def _initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed=120)
    values = {"head": rng.normal(0, CHANNELS[-1] ** -0.5, (CHANNELS[-1], CLASSES))}
    for layer, (n_in, n_out) in enumerate(pairwise(CHANNELS)):
        values[f"kernel{layer}"] = rng.normal(0, np.sqrt(2 / (9 * n_in)), (3, 3, n_in, n_out))
        values[f"bias{layer}"] = rng.normal(0, 0.1, n_out)
    return {name: value.astype(np.float32) for name, value in values.items()}


@functools.cache
def _weights() -> dict[str, tf.Variable]:
    with tf.init_scope():
        return {name: tf.Variable(value, name=name) for name, value in _initial().items()}


def _decoded(jpeg: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.io.decode_jpeg(jpeg, channels=3), [TAKEN, TAKEN, 3])


def _features(images: tf.Tensor) -> tf.Tensor:
    """Shapes: images [n, 64, 64, 3]; features [n, 64]."""
    w = _weights()
    features = images / 127.5 - 1.0
    for layer in range(len(CHANNELS) - 1):
        features = tf.nn.conv2d(features, w[f"kernel{layer}"], 2, "SAME")
        features = tf.nn.relu(tf.nn.bias_add(features, w[f"bias{layer}"]))
    return tf.reduce_mean(features, [1, 2])


def _predict(jpeg: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: jpeg scalar string; probabilities [10]."""
    seen = tf.image.resize(_decoded(jpeg), [SEEN, SEEN])
    features = _features(seen[tf.newaxis])[0]
    return {"probabilities": tf.nn.softmax(tf.tensordot(features, _weights()["head"], 1))}


def _by_hand(jpeg: tf.Tensor) -> dict[str, tf.Tensor]:
    images = tf.map_fn(_decoded, jpeg, fn_output_signature=tf.TensorSpec([TAKEN, TAKEN, 3], tf.uint8))
    return {"probabilities": tf.nn.softmax(_features(tf.image.resize(images, [SEEN, SEEN])) @ _weights()["head"])}


@functools.cache
def _pictures() -> tuple[bytes, ...]:
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(seed=121)
    photos = load_sample_images().images
    crops = []
    for index in range(64):
        photo = photos[index % len(photos)]
        top, left = (int(rng.integers(size - TAKEN)) for size in photo.shape[:2])
        crops.append(photo[top : top + TAKEN, left : left + TAKEN])
    with tf.init_scope():
        return tuple(tf.io.encode_jpeg(crop).numpy() for crop in crops)


def _examples() -> Iterator[dict[str, Any]]:
    """Yield pieces of two photographs."""
    for picture in _pictures():
        yield {"jpeg": picture}


JPEG_PIPELINE = Workload(
    name="jpeg_pipeline",
    inputs={"jpeg": tf.TensorSpec([], tf.string)},
    predict=_predict,
    by_hand=_by_hand,
    examples=_examples,
    weights=_initial,
    allow_looped=("DecodeJpeg",),
    not_in_xla="bytes of strings are outside of its types",
)
