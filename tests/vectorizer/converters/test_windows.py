"""Windows that slide over images, padding by mirror, and rearranged blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import ONE_BUCKET, check_loopless, refused_ops
from tests.vectorizer.oracle import spec
from vectorizer import LoopedOpError, vectorize

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(8, 6, 4, 4)).astype(np.float32)
PAIRS = np.stack([IMAGES, IMAGES[::-1]], 1)
VOLUMES = RNG.normal(size=(8, 4, 5, 3, 2)).astype(np.float32)


def gradient_of(function: Any) -> Any:
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(function(x) ** 2)
        return tape.gradient(loss, x)

    return gradient


def patches(x: tf.Tensor) -> tf.Tensor:
    return tf.image.extract_patches(x, [1, 2, 3, 1], [1, 2, 1, 1], [1, 1, 1, 1], "SAME")


def volume_patches(x: tf.Tensor) -> tf.Tensor:
    return tf.extract_volume_patches(x[None], [1, 2, 2, 2, 1], [1, 1, 2, 1, 1], "VALID")


def response(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.local_response_normalization(x, depth_radius=1, bias=1.5, alpha=0.3, beta=0.6)


PLAIN: dict[str, tuple[Any, np.ndarray]] = {
    "patches": (patches, PAIRS),
    "volume patches": (volume_patches, VOLUMES),
    "local response normalization": (response, PAIRS),
    "max pool": (lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME"), PAIRS),
    "average pool": (lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), PAIRS),
    "max pool in three dimensions": (lambda x: tf.nn.max_pool3d(x[None], 2, 1, "SAME"), VOLUMES),
    "average pool in three dimensions": (lambda x: tf.nn.avg_pool3d(x[None], 2, 2, "VALID"), VOLUMES),
    "depth to space": (lambda x: tf.nn.depth_to_space(x, 2), PAIRS),
    "space to depth": (lambda x: tf.nn.space_to_depth(x, 2), PAIRS),
    "mirrored": (lambda x: tf.pad(x, [[0, 0], [1, 2], [2, 0], [0, 0]], "REFLECT"), PAIRS),
    "mirrored with the edge": (lambda x: tf.pad(x, [[0, 0], [1, 2], [2, 0], [0, 1]], "SYMMETRIC"), PAIRS),
    "mirrored in the first dimension": (lambda x: tf.pad(x, [[1, 2], [1, 0], [0, 3]], "REFLECT"), IMAGES),
    "mirrored vector": (lambda x: tf.pad(x, [[3, 2]], "REFLECT"), IMAGES[:, :, 0, 0]),
    "mirrored volume": (lambda x: tf.pad(x[None], [[0, 0], [1, 2], [1, 0], [0, 2], [0, 0]], "REFLECT"), VOLUMES),
}


@pytest.mark.parametrize("name", PLAIN)
def test_stacked_images(name: str) -> None:
    function, values = PLAIN[name]
    check_loopless(function, {"x": values})


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "volume patches"])
def test_derivatives(name: str) -> None:
    function, values = PLAIN[name]
    check_loopless(gradient_of(function), {"x": values}, rtol=1e-4, buckets=ONE_BUCKET)


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "float64", "float16"])
def test_mirror_of_other_dtypes(dtype: str, mode: str) -> None:
    values = RNG.integers(0, 50, (8, 3, 4)).astype(dtype)
    check_loopless(lambda x: tf.pad(x, [[0, 1], [2, 0]], mode), {"x": values}, buckets=ONE_BUCKET)


def test_padding_of_each_row_is_refused_by_name() -> None:
    with pytest.raises(LoopedOpError, match=r"MirrorPad .*loop invariant"):
        vectorize(
            lambda x, p: tf.reduce_sum(tf.pad(x, tf.stack([[p, p]]), "SYMMETRIC")),
            inputs={"x": spec(4), "p": spec(dtype=tf.int32)},
            buckets=(2,),
        )


def test_mirror_in_six_dimensions_is_refused_by_name() -> None:
    with pytest.raises(LoopedOpError, match=r"MirrorPad .* the rows would be the sixth"):
        vectorize(lambda x: tf.pad(x, [[1, 0]] * 5, "SYMMETRIC"), inputs={"x": spec(2, 2, 2, 2, 2)}, buckets=(2,))


@pytest.mark.parametrize("include_batch", [False, True])
def test_places_of_the_largest_are_those_in_the_examples_own_images(*, include_batch: bool) -> None:
    def pooled(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tuple(tf.nn.max_pool_with_argmax(x, 2, 2, "VALID", include_batch_in_index=include_batch))

    check_loopless(pooled, {"x": PAIRS})
    check_loopless(gradient_of(lambda x: pooled(x)[0]), {"x": PAIRS}, rtol=1e-4)


def test_glimpses_at_places_of_each_row() -> None:
    def predict(x: tf.Tensor, at: tf.Tensor) -> list[tf.Tensor]:
        options = {"input": x, "size": [3, 2], "offsets": tf.tanh(at), "uniform_noise": False, "noise": "zero"}
        return [
            tf.raw_ops.ExtractGlimpse(**options),
            tf.raw_ops.ExtractGlimpseV2(**options, centered=False, normalized=False),
        ]

    images = RNG.normal(size=(8, 2, 5, 6, 3)).astype(np.float32)
    check_loopless(predict, {"x": images, "at": RNG.normal(size=(8, 2, 2)).astype(np.float32)}, buckets=(1, 7))


def test_glimpses_that_are_filled_with_noise_are_refused_by_name() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.ExtractGlimpse(input=x, size=[2, 2], offsets=[[0.0, 0.0]])

    assert "noise='zero'" in refused_ops(predict, x=spec(1, 4, 4, 1))["ExtractGlimpse"]


def test_pooling_by_a_fraction_with_a_seed_and_without() -> None:
    def predict(x: tf.Tensor) -> list[tf.Tensor]:
        options = {"value": x, "pooling_ratio": [1.0, 1.5, 1.3, 1.0], "deterministic": True, "seed": 3, "seed2": 4}
        largest = tf.raw_ops.FractionalMaxPool(**options)
        mean = tf.raw_ops.FractionalAvgPool(**options, overlapping=True)
        # TensorFlow states the places of the windows one too short, so they can't be outputs as they are.
        places = [largest[1], largest[2], mean[1], mean[2]]
        return [largest[0], mean[0], *(tf.reduce_sum(place * place) for place in places)]

    check_loopless(predict, {"x": RNG.normal(size=(8, 2, 6, 7, 3)).astype(np.float32)})

    def drawn(x: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.FractionalMaxPool(value=x, pooling_ratio=[1.0, 1.5, 1.5, 1.0]).output

    assert "deterministic" in refused_ops(drawn, x=spec(1, 6, 6, 1))["FractionalMaxPool"]
