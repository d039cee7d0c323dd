"""Depthwise convolutions: no hidden loop, whoever the filter belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import ONE_BUCKET, check_loopless

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
    check_loopless(
        lambda x: tf.cast(depthwise(tf.cast(x, dtype), kernel), tf.float32),
        {"x": IMAGES},
        rtol=2e-2,
        buckets=ONE_BUCKET,
    )


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

    buckets = ONE_BUCKET if options else None
    check_loopless(gradient, {"x": IMAGES, "k": KERNELS}, rtol=1e-4, buckets=buckets)
