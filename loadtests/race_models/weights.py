"""The weights of a model of the race."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["weights_of"]


@functools.cache
def weights_of(model: str) -> dict[str, Any]:
    """Return a model's variables by name. Errors: KeyError without ROWWISE_CACHE; OSError without the file."""
    loaded = np.load(Path(os.environ["ROWWISE_CACHE"]) / "models" / model / "weights.npz")
    with tf.init_scope():
        return {name: tf.Variable(loaded[name], trainable=False) for name in loaded.files}
