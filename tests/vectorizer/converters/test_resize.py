"""Images in another size or place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import ONE_BUCKET, check_loopless
from tests.vectorizer.oracle import check, spec
from vectorizer import LoopedOpError, vectorize

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(8, 6, 5, 2)).astype(np.float32)
IMAGE = tf.constant(IMAGES[0])
BOXES = RNG.uniform(-0.2, 1.2, size=(8, 3, 4)).astype(np.float32)
IMAGE_OF = RNG.integers(0, 2, (8, 3)).astype(np.int32)
TRANSFORMS = (
    np.array([1, 0, 0, 0, 1, 0, 0, 0]) + RNG.normal(size=(8, 8)) * [0.2, 0.2, 1, 0.2, 0.2, 1, 0.01, 0.01]
).astype(np.float32)


RESIZES = {
    "bilinear": {"method": "bilinear"},
    "bilinear smaller": {"method": "bilinear", "antialias": True},
    "bicubic": {"method": "bicubic"},
    "nearest": {"method": "nearest"},
    "area": {"method": "area"},
    "lanczos": {"method": "lanczos3"},
}


@pytest.mark.parametrize("case", RESIZES)
def test_resizing(case: str) -> None:
    check_loopless(lambda x: [tf.image.resize(x, size, **RESIZES[case]) for size in ((9, 3), (2, 2))], {"x": IMAGES})


@pytest.mark.parametrize("method", ["resize_bilinear", "resize_nearest_neighbor", "resize_bicubic", "resize_area"])
def test_resizing_as_version_one_did(method: str) -> None:
    resize = getattr(tf.compat.v1.image, method)
    pairs = np.stack([IMAGES, IMAGES[::-1]], 1)
    check_loopless(lambda x: [resize(x, (4, 7), align_corners=align) for align in (False, True)], {"x": pairs})


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16", "float64"])
def test_resizing_other_dtypes(dtype: str) -> None:
    images = RNG.integers(0, 100, size=(8, 4, 4, 1)).astype(dtype)
    methods = ("bilinear", "nearest")
    check_loopless(
        lambda x: [tf.image.resize(x, (6, 3), method=method) for method in methods], {"x": images}, buckets=ONE_BUCKET
    )


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "nearest", "lanczos3"])
def test_derivative_of_resizing(method: str) -> None:
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.image.resize(x, (4, 7), method=method) ** 2)
        return tape.gradient(loss, x)

    check_loopless(gradient, {"x": IMAGES}, rtol=1e-4)


def test_size_of_each_row_is_refused_by_name() -> None:
    inputs = {"x": spec(6, 5, 2), "size": spec(2, dtype=tf.int32)}

    def predict(x: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.image.resize(x, tf.abs(size) + 1))

    with pytest.raises(LoopedOpError, match=r"ResizeBilinear .*\"size\".* expected to be loop invariant"):
        vectorize(predict, inputs=inputs, buckets=(2,))


@pytest.mark.parametrize("method", ["bilinear", "nearest"])
def test_crops_of_each_rows_own_image(method: str) -> None:
    boxes = tf.constant(BOXES[0])
    check_loopless(
        lambda x, b: [
            tf.image.crop_and_resize(x[None], b, [0, 0, 0], (3, 4), method, 2.5),
            tf.image.crop_and_resize(IMAGE[None], b, [0, 0, 0], (3, 4), method),
            tf.image.crop_and_resize(x[None], boxes, [0, 0, 0], (3, 4), method),
        ],
        {"x": IMAGES, "b": BOXES},
    )


def test_crops_of_several_images_of_one_example() -> None:
    pairs = np.stack([IMAGES, IMAGES[::-1]], 1)
    check_loopless(lambda x, b, i: tf.image.crop_and_resize(x, b, i, (3, 4)), {"x": pairs, "b": BOXES, "i": IMAGE_OF})
    pair = tf.constant(pairs[0])
    check_loopless(lambda b, i: tf.image.crop_and_resize(pair, b, i, (3, 4)), {"b": BOXES, "i": IMAGE_OF})


def test_crop_of_an_image_that_the_example_does_not_have_never_shows_another_rows() -> None:
    vectorized = vectorize(
        lambda x, i: tf.image.crop_and_resize(x[None], [[0.0, 0.0, 1.0, 1.0]], i, (3, 4)),
        inputs={"x": spec(6, 5, 2), "i": spec(1, dtype=tf.int32)},
        buckets=(4,),
    )
    for place in (1, -1, 3):
        with pytest.raises(tf.errors.OutOfRangeError):
            vectorized(x=IMAGES[:4], i=[[0], [place], [0], [0]])


LARGE = {
    "of opposite signs": [-3e38, 0.0, 3e38, 1.0],
    "far away": [3e38, 0.0, -3e38, 1.0],
    "wide": [0.0, -2e38, 1.0, 3e38],
    "no number": [0.0, 0.0, np.nan, 1.0],
}


@pytest.mark.parametrize("case", LARGE)
@pytest.mark.parametrize("shared", [False, True])
def test_box_whose_places_overflow_is_an_error_where_the_kernel_would_read_anywhere(case: str, *, shared: bool) -> None:
    vectorized = vectorize(
        lambda x, b: tf.image.crop_and_resize(IMAGE[None] + 0.0 if shared else x[None], [b], [0], (3, 3)),
        inputs={"x": spec(6, 5, 2), "b": spec(4)},
        buckets=(2,),
    )
    with pytest.raises(tf.errors.OpError):
        vectorized(x=IMAGES[:2], b=[[0.0, 0.0, 1.0, 1.0], LARGE[case]])


def test_large_box_whose_places_are_numbers_is_answered() -> None:
    boxes = np.array([[0, 0, 1e30, 1e30], [-1e30, 0, 1e30, 1], [1e37, 1e37, 1e37, 1e37], [0, 0, 1, 1]], np.float32)
    check(lambda x, b: tf.image.crop_and_resize(x[None], [b], [0], (3, 3)), {"x": IMAGES[:4], "b": boxes}, n_rows=(4,))


@pytest.mark.parametrize("of", ["x", "b"])
def test_derivatives_of_cropping(of: str) -> None:
    def gradient(x: tf.Tensor, b: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        target = {"x": x, "b": b}[of]
        with tf.GradientTape() as tape:
            tape.watch(target)
            loss = tf.reduce_sum(tf.image.crop_and_resize(x, b, i, (3, 4)) ** 2)
        return tape.gradient(loss, target)

    pairs = np.stack([IMAGES, IMAGES[::-1]], 1)
    check_loopless(gradient, {"x": pairs, "b": BOXES, "i": IMAGE_OF}, rtol=1e-3)


def moved(images: tf.Tensor, transforms: tf.Tensor, fill: float = 0.5, **options: Any) -> tf.Tensor:
    settings = {"interpolation": "BILINEAR", "fill_mode": "CONSTANT", **options}
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images, transforms=transforms, output_shape=[7, 4], fill_value=fill, **settings
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"interpolation": "NEAREST"}, {"fill_mode": "REFLECT"}, {"fill_mode": "WRAP"}, {"fill_mode": "NEAREST"}],
)
def test_projective_transforms(options: dict[str, str]) -> None:
    shared = tf.constant(TRANSFORMS[:1])
    check_loopless(
        lambda x, t: [
            moved(x[None], t[None], **options),
            moved(x[None], shared, **options),
            moved(IMAGE[None], t[None], **options),
        ],
        {"x": IMAGES, "t": TRANSFORMS},
    )


def test_projective_transforms_of_several_images_of_one_example() -> None:
    pairs, two = np.stack([IMAGES, IMAGES[::-1]], 1), np.stack([TRANSFORMS, TRANSFORMS[::-1]], 1)
    of_both = tf.constant(two[0])
    check_loopless(lambda x, t: [moved(x, t), moved(x, t[:1]), moved(x, of_both)], {"x": pairs, "t": two})


def test_older_projective_transform() -> None:
    check_loopless(
        lambda x, t: tf.raw_ops.ImageProjectiveTransformV2(
            images=x[None], transforms=t[None], output_shape=[7, 4], interpolation="BILINEAR", fill_mode="CONSTANT"
        ),
        {"x": IMAGES, "t": TRANSFORMS},
    )


def test_fill_value_of_each_row_is_refused_by_name() -> None:
    with pytest.raises(LoopedOpError, match="ImageProjectiveTransformV3"):
        vectorize(
            lambda x, fill: moved(x[None], TRANSFORMS[:1], fill),
            inputs={"x": spec(6, 5, 2), "fill": spec()},
            buckets=(2,),
        )


def test_boxes_that_are_drawn() -> None:
    colors = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    images = IMAGES[..., :1]
    check_loopless(
        lambda x, b: tf.image.draw_bounding_boxes(x[None], b[None], colors[:, :1]), {"x": images, "b": BOXES}
    )
    check_loopless(lambda x, b: tf.raw_ops.DrawBoundingBoxes(images=x[None], boxes=b[None]), {"x": images, "b": BOXES})
