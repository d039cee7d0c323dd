"""MobileNetV2 as Keras has it, at 96 by 96 pixels, with random weights.

Source: M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.workloads.workload import Workload

__all__ = ["MOBILENET"]

SIZE = 96
CLASSES = 100


@functools.cache
def _model() -> Any:
    with tf.init_scope():
        tf.keras.utils.set_random_seed(110)
        model = tf.keras.applications.MobileNetV2(input_shape=(SIZE, SIZE, 3), weights=None, classes=CLASSES)
        rng = np.random.default_rng(seed=110)
        for layer in model.layers:
            if isinstance(layer, tf.keras.layers.BatchNormalization):
                # As after training: with all means 0 and variances 1 the norms would have nothing to do.
                scale, shift, mean, variance = layer.get_weights()
                near = rng.normal(0, 0.1, (3, *scale.shape)).astype(np.float32)
                layer.set_weights([scale + near[0], shift + near[1], mean + near[2], variance])
        return model


def _predict(image: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: image [96, 96, 3], from -1 to 1; probabilities [100]."""
    return {"probabilities": _model()(image[tf.newaxis], training=False)[0]}


def _by_hand(image: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"probabilities": _model()(image, training=False)}


def _weights() -> dict[str, np.ndarray]:
    return {variable.path: variable.numpy() for variable in _model().variables}


def _examples() -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed=111)
    for _ in range(64):
        yield {"image": rng.uniform(-1, 1, (SIZE, SIZE, 3)).astype(np.float32)}


MOBILENET = Workload(
    name="mobilenet_v2",
    inputs={"image": tf.TensorSpec([SIZE, SIZE, 3], tf.float32)},
    predict=_predict,
    by_hand=_by_hand,
    examples=_examples,
    weights=_weights,
)
