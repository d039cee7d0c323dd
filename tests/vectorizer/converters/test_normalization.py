"""Fused batch normalization with numbers of each row, and half the sum of squares."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import ONE_BUCKET, check_loopless
from tests.vectorizer.oracle import spec
from vectorizer import LoopedOpError, Vectorized, vectorize

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(8, 2, 4, 3, 3)).astype(np.float32)
NUMBERS = {
    name: RNG.uniform(0.5, 2.0, size=(8, 3)).astype(np.float32) for name in ("scale", "offset", "mean", "variance")
}
IMAGE = tf.constant(IMAGES[0])


def check_loop_free(function: Any, inputs: dict[str, Any], **options: Any) -> Vectorized:
    return check_loopless(function, inputs, **{"rtol": 1e-4, **options})


def normalized(x: tf.Tensor, numbers: dict[str, tf.Tensor], **options: Any) -> Any:
    given = {name: numbers.get(name, tf.constant(NUMBERS[name][0])) for name in NUMBERS}
    # A variance below 0 has no root, and where it is about -epsilon its root is noise.
    given["variance"] = tf.abs(given["variance"]) + 0.1
    return tf.raw_ops.FusedBatchNormV3(x=x, **given, **{"epsilon": 1e-3, "is_training": False, **options})


@pytest.mark.parametrize("own", [[], ["scale"], ["offset"], ["mean", "variance"], ["scale", "offset"], list(NUMBERS)])
def test_numbers_of_each_row(own: list[str]) -> None:
    inputs = {name: NUMBERS[name] for name in own}
    check_loop_free(lambda x, **numbers: normalized(x, numbers)[0], {"x": IMAGES, **inputs})
    if own:
        check_loop_free(lambda **numbers: normalized(IMAGE, numbers)[0], inputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_normalized_by_floats(dtype: str) -> None:
    check_loop_free(
        lambda x, scale: tf.cast(normalized(tf.cast(x, dtype), {"scale": scale})[0], tf.float32),
        {"x": IMAGES, "scale": NUMBERS["scale"]},
        rtol=2e-2,
        tolerance=2e-2,
        buckets=ONE_BUCKET,
    )


@pytest.mark.parametrize("op", [tf.raw_ops.FusedBatchNorm, tf.raw_ops.FusedBatchNormV2])
@pytest.mark.parametrize("own", [[], list(NUMBERS)])
def test_older_forms(op: Any, own: list[str]) -> None:
    def older(x: tf.Tensor, **numbers: tf.Tensor) -> tf.Tensor:
        given = {name: numbers.get(name, tf.constant(NUMBERS[name][0])) for name in NUMBERS}
        return op(x=x, **{**given, "variance": tf.abs(given["variance"]) + 0.1}, is_training=False).y

    check_loop_free(older, {"x": IMAGES, **{name: NUMBERS[name] for name in own}}, buckets=ONE_BUCKET)


def test_older_form_with_statistics_of_the_examples_own_batch_is_refused_by_name() -> None:
    empty = tf.zeros([0])
    with pytest.raises(LoopedOpError, match=r"op FusedBatchNormV2 .*FusedBatchNormV3 alone"):
        vectorize(
            lambda x: tf.raw_ops.FusedBatchNormV2(x=x, scale=[1.0], offset=[0.0], mean=empty, variance=empty).y,
            inputs={"x": spec(2, 3, 3, 1)},
            buckets=(2,),
        )


def test_mean_and_variance_are_given_back() -> None:
    inputs = {name: NUMBERS[name] for name in ("mean", "variance")}
    check_loop_free(lambda x, **numbers: tuple(normalized(x, numbers)[:3]), {"x": IMAGES, **inputs})
    check_loop_free(lambda x: tuple(normalized(x, {})[:3]), {"x": IMAGES})


@pytest.mark.parametrize("own", [[], ["scale", "offset"]])
def test_statistics_of_the_examples_own_batch(own: list[str]) -> None:
    empty = tf.zeros([0])
    inputs = {name: NUMBERS[name] for name in own}

    def train(x: tf.Tensor, **numbers: tf.Tensor) -> Any:
        given = {name: numbers.get(name, tf.constant(NUMBERS[name][0])) for name in ("scale", "offset")}
        return tuple(tf.raw_ops.FusedBatchNormV3(x=x, **given, mean=empty, variance=empty, epsilon=1e-2)[:3])

    check_loop_free(train, {"x": IMAGES, **inputs})


@pytest.mark.parametrize(("of", "own"), list(product(["x", "scale"], [[], ["scale"], list(NUMBERS)])))
def test_derivatives(of: str, own: list[str]) -> None:
    def gradient(x: tf.Tensor, **numbers: tf.Tensor) -> tf.Tensor:
        given = {"scale": tf.constant(NUMBERS["scale"][0]), **numbers}
        target = x if of == "x" else given["scale"]
        with tf.GradientTape() as tape:
            tape.watch(target)
            loss = tf.reduce_sum(normalized(x, given)[0] ** 2)
        return tape.gradient(loss, target)

    check_loop_free(gradient, {"x": IMAGES, **{name: NUMBERS[name] for name in own}})


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", [(), (3,), (4, 2, 3)])
def test_half_the_sum_of_squares(shape: tuple[int, ...], dtype: str) -> None:
    values = RNG.uniform(-1, 1, size=(8, *shape)).astype(dtype)
    buckets = None if dtype == "float32" else ONE_BUCKET
    check_loop_free(tf.nn.l2_loss, {"t": values}, rtol=1e-3 if dtype == "float16" else 1e-6, buckets=buckets)
