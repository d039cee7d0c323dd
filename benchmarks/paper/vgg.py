"""The Jacobian of VGG16's features by a picture of 32 by 32 pixels, for outputs of several sizes.

Source: K. Simonyan, A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2015.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from benchmarks.paper.configuration import Configuration, normal, variables

__all__ = ["CONFIGURATIONS"]

SIZE = 32
#: Channels of each block's convolutions; a block ends with a pool.
BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
MOST_OUTPUTS = 128


@functools.cache
def _weights() -> dict[str, tf.Variable]:
    values = {"vgg_head": normal(512, MOST_OUTPUTS, seed=19, scale=512**-0.5)}
    n_in = 3
    for layer, n_out in enumerate(n_out for block in BLOCKS for n_out in block):
        values[f"vgg_kernel{layer}"] = normal(3, 3, n_in, n_out, seed=20 + layer, scale=(2 / (9 * n_in)) ** 0.5)
        n_in = n_out
    return variables(values)


def _features(n_outputs: int) -> Callable[[tf.Tensor], tf.Tensor]:
    def features(image: tf.Tensor) -> tf.Tensor:
        w = _weights()
        x = image[tf.newaxis]
        layer = 0
        for block in BLOCKS:
            for _ in block:
                x = tf.nn.relu(tf.nn.conv2d(x, w[f"vgg_kernel{layer}"], 1, "SAME"))
                layer += 1
            x = tf.nn.max_pool2d(x, 2, 2, "VALID")
        return tf.tensordot(tf.reshape(x, [512]), w["vgg_head"][:, :n_outputs], 1)

    return features


def _batch(n_rows: int) -> Mapping[str, np.ndarray]:
    return {"image": normal(n_rows, SIZE, SIZE, 3, seed=21)}


CONFIGURATIONS = tuple(
    Configuration(
        name=f"vgg16_jacobian_{n_outputs}",
        rows=1,
        inputs={"image": tf.TensorSpec([SIZE, SIZE, 3], tf.float32)},
        function=_features(n_outputs),
        batch=_batch,
        kind="jacobian",
        is_long=n_outputs > 8,
    )
    for n_outputs in (8, 32, MOST_OUTPUTS)
)
