"""What XLA is given of a batched graph: the same answers, and no op that XLA's compiler makes a slow loop of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from vectorizer.effects import walk_ops
from vectorizer.for_xla import for_xla

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(4, 9, 8, 3)).astype(np.float32)
KERNEL = RNG.normal(size=(3, 2, 3, 2)).astype(np.float32)
SLOW = "DepthwiseConv2dNative"


def graph_of(function: Any, dtype: Any = tf.float32) -> Any:
    def named(**inputs: tf.Tensor) -> Any:
        """Take inputs by name alone, as batched graphs do."""
        return function(**inputs)

    return tf.function(named).get_concrete_function(image=tf.TensorSpec(IMAGES.shape, dtype, name="image"))


def ops_of(graph: Any) -> set[str]:
    return {op.type for op in walk_ops(graph.graph)}


@pytest.mark.parametrize(
    ("strides", "padding"),
    [
        (1, "SAME"),
        (2, "SAME"),
        (3, "VALID"),
        (2, [[0, 0], [1, 2], [0, 3], [0, 0]]),
    ],
)
@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise_convolution_is_a_sum_of_slices(strides: int, padding: Any, multiplier: int) -> None:
    kernel = tf.Variable(KERNEL[..., :multiplier])

    def convolved(image: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.nn.depthwise_conv2d(image, kernel, [1, strides, strides, 1], padding)}

    graph = graph_of(convolved)
    compiled = for_xla(graph)
    assert SLOW in ops_of(graph)
    assert SLOW not in ops_of(compiled)
    # What is beside an image is zero and not zero times it: no infinity of one place gets to another.
    images = np.where(np.arange(9 * 8 * 3).reshape(9, 8, 3) % 53 == 0, np.float32(np.inf), IMAGES)
    for given in (IMAGES, images):
        want = graph(image=tf.constant(given))["y"]
        np.testing.assert_allclose(compiled(image=tf.constant(given))["y"], want, rtol=1e-5, atol=1e-5)
    kernel.assign(kernel + 1.0)
    np.testing.assert_allclose(
        compiled(image=tf.constant(IMAGES))["y"], graph(image=tf.constant(IMAGES))["y"], rtol=1e-5, atol=1e-5
    )


def test_loops_calls_and_branches_are_made_again_around_it() -> None:
    kernel = tf.constant(KERNEL[:2, :, :, :1])

    @tf.function
    def step(image: tf.Tensor) -> tf.Tensor:
        return tf.nn.depthwise_conv2d(image, kernel, [1, 1, 1, 1], "SAME") / 2.0

    def predict(image: tf.Tensor) -> dict[str, tf.Tensor]:
        result = image
        for _ in tf.range(tf.cast(image[0, 0, 0, 0], tf.int32)):
            result = step(result)
        if result[0, 0, 0, 0] > 0:
            result = step(-result)
        return {"sum": tf.reduce_sum(result), "image": result}

    graph = graph_of(predict)
    compiled = for_xla(graph)
    assert SLOW in ops_of(graph)
    assert SLOW not in ops_of(compiled)
    images = IMAGES.copy()
    for images[0, 0, 0, 0] in (0.5, 3.5):
        want, got = graph(image=tf.constant(images)), compiled(image=tf.constant(images))
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_small_floats_stay_with_the_kernel_that_sums_them_in_float32(dtype: tf.DType) -> None:
    kernel = tf.cast(KERNEL, dtype)
    graph = graph_of(lambda image: {"y": tf.nn.depthwise_conv2d(image, kernel, [1, 1, 1, 1], "SAME")}, dtype)
    assert SLOW in ops_of(for_xla(graph))


def test_large_filters_stay_with_the_kernel() -> None:
    kernel = tf.ones([8, 7, 3, 1])
    graph = graph_of(lambda image: {"y": tf.nn.depthwise_conv2d(image, kernel, [1, 1, 1, 1], "SAME")})
    assert SLOW in ops_of(for_xla(graph))
