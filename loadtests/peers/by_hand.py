"""The digits model batched by hand: what one writes for a server that hands over a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import orjson

__all__ = ["MODEL", "answer_body", "batched", "image_of"]

MODEL = "digits"


def batched(sizes: Sequence[int]) -> Callable[[Sequence[Any]], np.ndarray]:
    """Return a function from images to their probabilities, traced and warm for batches of ``sizes``, ascending.

    Shapes: any number of images [64], at most the largest size -> [n, 10]. A batch is padded to the next size: traced
    for any number of rows, it would be compiled while it serves.
    """
    import tensorflow as tf

    from models.digits import network, weights

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    def of_images(images: tf.Tensor) -> tf.Tensor:
        return tf.nn.softmax(network(weights(), images))

    run = tf.function(of_images)

    def probabilities(images: Sequence[Any]) -> np.ndarray:
        n = len(images)
        rows = np.zeros((next(size for size in sizes if size >= n), 64), np.float32)
        rows[:n] = images
        found: np.ndarray = run(tf.constant(rows)).numpy()[:n]
        return found

    for size in sizes:
        probabilities([np.zeros(64, np.float32)] * size)
    return probabilities


def image_of(body: bytes) -> list[float]:
    """Return the one image of a request's JSON."""
    (image,) = orjson.loads(body)["instances"]
    found: list[float] = image
    return found


def answer_body(probabilities: np.ndarray) -> bytes:
    """Return the JSON of one image's answer. Shapes: [10]."""
    return orjson.dumps({"predictions": [probabilities]}, option=orjson.OPT_SERIALIZE_NUMPY)
