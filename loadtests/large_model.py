"""A model whose build is long and heavy: what others are served beside. MobileNetV2 with random weights."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["BUILD", "predict"]

_SIZE, _CLASSES = 96, 100

#: What registers it, but for its import path.
BUILD = {"inputs": {"image": {"dtype": "float32", "shape": [_SIZE, _SIZE, 3]}}}


@functools.cache
def _model() -> Any:
    import tensorflow as tf

    with tf.init_scope():
        return tf.keras.applications.MobileNetV2(input_shape=(_SIZE, _SIZE, 3), weights=None, classes=_CLASSES)


def predict(image: tf.Tensor) -> dict[str, tf.Tensor]:
    """Shapes: image [96, 96, 3], from -1 to 1; probabilities [100]."""
    return {"probabilities": _model()(image[None], training=False)[0]}
