"""Convolutions with a shared filter and with a filter of each row, and their derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import ONE_BUCKET, check_loopless
from tests.vectorizer.oracle import check, spec
from vectorizer import Derivative, LoopedOpError, Vectorized, vectorize

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(8, 6, 5, 3)).astype(np.float32)
KERNELS = RNG.normal(size=(8, 3, 2, 3, 4)).astype(np.float32)
IMAGE, KERNEL = tf.constant(IMAGES[0]), tf.constant(KERNELS[0])
VOLUMES = RNG.normal(size=(8, 4, 5, 3, 2)).astype(np.float32)
VOLUME_KERNELS = RNG.normal(size=(8, 2, 3, 2, 2, 3)).astype(np.float32)
VOLUME, VOLUME_KERNEL = tf.constant(VOLUMES[0]), tf.constant(VOLUME_KERNELS[0])
HATS = RNG.normal(size=(8, 3, 2, 3)).astype(np.float32)
HAT = tf.constant(HATS[0])


def check_loop_free(function: Any, inputs: dict[str, Any], **options: Any) -> Vectorized:
    return check_loopless(function, inputs, **{"rtol": 1e-4, **options})


def conv(image: tf.Tensor, kernel: tf.Tensor, **options: Any) -> tf.Tensor:
    images = image if image.shape.rank == 4 else image[None]
    return tf.nn.conv2d(images, kernel, **{"strides": 1, "padding": "SAME", **options})


def conv3d(volume: tf.Tensor, kernel: tf.Tensor, **options: Any) -> tf.Tensor:
    return tf.nn.conv3d(volume[None], kernel, **{"strides": [1] * 5, "padding": "SAME", **options})


OPTIONS: list[dict[str, Any]] = [
    {},
    {"padding": "VALID", "strides": [2, 1]},
    {"strides": 2},
    {"strides": 3, "padding": "VALID"},
    {"dilations": [1, 2]},
    {"padding": [[0, 0], [1, 2], [0, 1], [0, 0]], "strides": 2},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_filter_of_each_row(options: dict[str, Any]) -> None:
    check_loop_free(lambda x, k: conv(x, k, **options), {"x": IMAGES, "k": KERNELS})


def test_shared_filter_and_shared_image() -> None:
    check_loop_free(lambda x: conv(x, KERNEL), {"x": IMAGES})
    check_loop_free(lambda k: conv(IMAGE, k), {"k": KERNELS})


def test_example_with_a_batch_of_its_own() -> None:
    pairs = np.stack([IMAGES, IMAGES[::-1]], 1)
    check_loop_free(lambda x: conv(x, KERNEL), {"x": pairs})
    check_loop_free(conv, {"image": pairs, "kernel": KERNELS})


def test_filter_of_one_place_and_filter_of_the_whole_image() -> None:
    check_loop_free(lambda x, k: conv(x, k[:1, :1]), {"x": IMAGES, "k": KERNELS})
    whole = RNG.normal(size=(8, 6, 5, 3, 2)).astype(np.float32)
    check_loop_free(lambda x, k: conv(x, k, padding="VALID"), {"x": IMAGES, "k": whole})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes(dtype: str) -> None:
    check_loop_free(
        lambda x, k: tf.cast(conv(tf.cast(x, dtype), tf.cast(k, dtype)), tf.float32),
        {"x": IMAGES, "k": KERNELS},
        rtol=5e-2,
        tolerance=5e-2,
        buckets=ONE_BUCKET,
    )


# TensorFlow's kernels for the derivatives take no dilation on a CPU.
@pytest.mark.parametrize("options", [options for options in OPTIONS if "dilations" not in options])
@pytest.mark.parametrize("of", ["image", "shared kernel", "own kernel", "image by own kernel"])
def test_derivatives(of: str, options: dict[str, Any]) -> None:
    def gradient(x: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
        kernel = k if "own" in of else KERNEL
        target = x if of.startswith("image") else kernel
        with tf.GradientTape() as tape:
            tape.watch(target)
            loss = tf.reduce_sum(conv(x, kernel, **options) ** 2)
        return tape.gradient(loss, target)

    check_loop_free(gradient, {"x": IMAGES, "k": KERNELS}, buckets=ONE_BUCKET if options else None)


def test_derivative_by_the_filter_of_one_image() -> None:
    def gradient(y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(KERNEL)
            loss = tf.reduce_sum(conv(IMAGE, KERNEL) * y)
        return tape.gradient(loss, KERNEL)

    check_loop_free(gradient, {"y": RNG.normal(size=(8, 6, 5, 4)).astype(np.float32)})


def test_jacobian_by_the_filter_does_not_loop_over_the_rows() -> None:
    kernel = tf.Variable(KERNEL)
    function = lambda x: conv(x, kernel, strides=3)  # noqa: E731
    images = IMAGES[:2]
    wanted = []
    for image in images:
        with tf.GradientTape(persistent=True) as tape:
            result = function(tf.constant(image))
        wanted.append(tape.jacobian(result, kernel, experimental_use_pfor=False))
    jacobian = Derivative(kind="jacobian", wrt=kernel)
    made = vectorize(function, inputs={"x": spec(6, 5, 3)}, buckets=(2,), derivatives=[jacobian])
    np.testing.assert_allclose(made.derivatives["jacobian"](x=images), np.stack(wanted), rtol=1e-4, atol=1e-5)
    assert made.derivatives["jacobian"].certificate.loops_batched == 0


def test_derivative_by_a_filter_of_many_channels() -> None:
    kernel = tf.constant(RNG.normal(size=(3, 2, 32, 5)).astype(np.float32))

    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(kernel)
            loss = tf.reduce_sum(conv(x, kernel, strides=2) ** 2)
        return tape.gradient(loss, kernel)

    images = RNG.normal(size=(3, 5, 4, 32)).astype(np.float32)
    made = check(gradient, {"x": images}, buckets=(3,), n_rows=(3,), rtol=1e-4).graphs
    # One product for each place of the filter.
    assert [op.type for graph in made.values() for op in graph.graph.get_operations()].count("BatchMatMulV2") == 6


@pytest.mark.parametrize("options", [{}, {"padding": "VALID", "strides": [1, 2, 1, 2, 1]}])
def test_three_dimensions(options: dict[str, Any]) -> None:
    check_loop_free(
        lambda x, k: [conv3d(x, VOLUME_KERNEL, **options), conv3d(VOLUME, k, **options), conv3d(x, k, **options)],
        {"x": VOLUMES, "k": VOLUME_KERNELS},
    )


@pytest.mark.parametrize("of", ["volume", "shared kernel", "own kernel", "volume by own kernel"])
def test_derivatives_in_three_dimensions(of: str) -> None:
    def gradient(x: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
        kernel = k if "own" in of else VOLUME_KERNEL
        target = x if of.startswith("volume") else kernel
        with tf.GradientTape() as tape:
            tape.watch(target)
            loss = tf.reduce_sum(conv3d(x, kernel, strides=[1, 2, 1, 1, 1]) ** 2)
        return tape.gradient(loss, target)

    check_loop_free(gradient, {"x": VOLUMES, "k": VOLUME_KERNELS})


def dilated(image: tf.Tensor, hat: tf.Tensor, **options: Any) -> tf.Tensor:
    settings = {"strides": [1] * 4, "padding": "SAME", "data_format": "NHWC", "dilations": [1, 2, 1, 1], **options}
    return tf.nn.dilation2d(image[None], hat, **settings)


@pytest.mark.parametrize("options", [{}, {"padding": "VALID", "strides": [1, 2, 1, 1], "dilations": [1] * 4}])
def test_dilation(options: dict[str, Any]) -> None:
    check_loop_free(
        lambda x, h: [dilated(x, HAT, **options), dilated(IMAGE, h, **options), dilated(x, h, **options)],
        {"x": IMAGES, "h": HATS},
    )


@pytest.mark.parametrize("of", ["image", "shared hat", "own hat", "image by own hat"])
def test_derivatives_of_dilation(of: str) -> None:
    def gradient(x: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
        hat = h if "own" in of else HAT
        target = x if of.startswith("image") else hat
        with tf.GradientTape() as tape:
            tape.watch(target)
            loss = tf.reduce_sum(dilated(x, hat) ** 2)
        return tape.gradient(loss, target)

    check_loop_free(gradient, {"x": IMAGES, "h": HATS})


def test_shared_filter_of_groups() -> None:
    kernel = tf.constant(RNG.normal(size=(3, 3, 1, 6)).astype(np.float32))
    check_loop_free(lambda x: conv(x, kernel), {"x": IMAGES})


@pytest.mark.parametrize("options", [{}, {"strides": 2, "padding": "VALID"}])
def test_filter_of_each_row_of_groups(options: dict[str, Any]) -> None:
    images = RNG.normal(size=(8, 6, 5, 4)).astype(np.float32)
    kernels = RNG.normal(size=(8, 3, 2, 2, 6)).astype(np.float32)
    check_loop_free(lambda x, k: conv(x, k, **options), {"x": images, "k": kernels})


def test_filter_of_each_row_that_is_too_large_is_refused_by_name() -> None:
    with pytest.raises(LoopedOpError, match=r"Conv2D .* up to 256 places, not 289"):
        vectorize(conv, inputs={"image": spec(20, 20, 1), "kernel": spec(17, 17, 1, 1)}, buckets=(2,))
