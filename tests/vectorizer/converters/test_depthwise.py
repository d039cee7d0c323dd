"""Depthwise convolutions: no hidden loop, whoever the filter belongs to."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless
from tests.vectorizer.oracle import spec
from vectorizer import vectorize

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(8, 6, 5, 3)).astype(np.float32)
KERNELS = RNG.normal(size=(8, 3, 2, 3, 2)).astype(np.float32)
KERNEL = tf.constant(KERNELS[0])
IMAGE = tf.constant(IMAGES[0])


def depthwise(image: tf.Tensor, kernel: tf.Tensor, **options: Any) -> tf.Tensor:
    settings = {"strides": [1, 1, 1, 1], "padding": "SAME", **options}
    images = image if image.shape.rank == 4 else image[None]
    return tf.nn.depthwise_conv2d(images, kernel, **settings)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"padding": "VALID", "strides": [1, 2, 2, 1]},
    {"dilations": [2, 2]},
    {"padding": [[0, 0], [1, 2], [0, 1], [0, 0]]},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_shared_filter_is_not_a_loop(options: dict[str, Any]) -> None:
    check_loopless(lambda x: depthwise(x, KERNEL, **options), {"x": IMAGES})


@pytest.mark.parametrize("options", OPTIONS)
def test_filter_of_each_row(options: dict[str, Any]) -> None:
    check_loopless(lambda x, k: depthwise(x, k, **options), {"x": IMAGES, "k": KERNELS})


def test_filter_of_each_row_over_one_image() -> None:
    check_loopless(lambda k: depthwise(IMAGE, k), {"k": KERNELS})


def test_example_with_a_batch_of_its_own() -> None:
    pairs = np.stack([IMAGES, IMAGES[::-1]], 1)
    check_loopless(lambda x: depthwise(x, KERNEL), {"x": pairs})
    check_loopless(depthwise, {"image": pairs, "kernel": KERNELS})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(dtype: str) -> None:
    kernel = tf.cast(KERNEL, dtype)
    check_loopless(lambda x: tf.cast(depthwise(tf.cast(x, dtype), kernel), tf.float32), {"x": IMAGES}, rtol=2e-2)


@pytest.mark.parametrize("options", OPTIONS[:2])
@pytest.mark.parametrize("of", ["image", "shared kernel", "own kernel", "image by own kernel"])
def test_derivatives(of: str, options: dict[str, Any]) -> None:
    def gradient(x: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
        kernel = k if "own" in of else KERNEL
        target = x if of.startswith("image") else kernel
        with tf.GradientTape() as tape:
            tape.watch(target)
            loss = tf.reduce_sum(depthwise(x, kernel, **options) ** 2)
        return tape.gradient(loss, target)

    check_loopless(gradient, {"x": IMAGES, "k": KERNELS}, rtol=1e-4)


@pytest.mark.slow
def test_mobilenet_has_no_loop() -> None:
    keras.utils.set_random_seed(0)
    model = keras.applications.MobileNetV2(input_shape=(96, 96, 3), weights=None, classes=10, alpha=0.35)
    x = RNG.uniform(-1, 1, size=(7, 96, 96, 3)).astype(np.float32)
    # As initialized, a network of this depth answers the same for all images. Take its statistics from these.
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    model(x, training=True)
    vectorized = vectorize(model, inputs={"x": spec(96, 96, 3)}, buckets=(1, 2, 8))
    assert vectorized.certificate.looped == ()
    assert vectorized.certificate.loops_batched == 0
    want = np.stack([np.asarray(model(row[None], training=False))[0] for row in x])
    assert np.ptp(want, axis=0).max() > 1e-2, "all images are answered alike, so that nothing is tested"
    for n in (1, 2, 7):
        np.testing.assert_allclose(vectorized(x=x[:n]), want[:n], rtol=1e-3, atol=1e-5)
