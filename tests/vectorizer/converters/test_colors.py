"""Colours of images, with one factor for all rows and with a factor of each."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import ONE_BUCKET, check_loopless
from tests.vectorizer.oracle import spec
from vectorizer import LoopedOpError, Vectorized, vectorize
from vectorizer.patience import Patience

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(size=(8, 4, 3, 3)).astype(np.float32)
#: Greys, and colours of two equal channels, where sectors of the colour circle meet.
IMAGES[0] = IMAGES[0, ..., :1]
IMAGES[1, ..., 1] = IMAGES[1, ..., 0]
IMAGES[2, ..., 2] = IMAGES[2, ..., 1]
IMAGES[3, ..., 0] = IMAGES[3, ..., 2]
IMAGE = tf.constant(IMAGES[5])
FACTORS = np.array([0.0, 1.0, 0.5, 3.0, 0.1, 1.0 / 3, 2.0, 0.9], np.float32)
DELTAS = np.array([0.0, 0.5, -0.5, 1.0, -1.0, 1.0 / 6, -1e-9, 0.37], np.float32)


def in_time(call: Any) -> Any:
    with Patience() as patience:
        return patience.within(60.0, call)


def contrast(x: tf.Tensor, f: tf.Tensor) -> tf.Tensor:
    return tf.image.adjust_contrast(x, f)


def hue(x: tf.Tensor, f: tf.Tensor) -> tf.Tensor:
    return tf.image.adjust_hue(x, f)


def saturation(x: tf.Tensor, f: tf.Tensor) -> tf.Tensor:
    return tf.image.adjust_saturation(x, f)


ADJUSTMENTS: dict[str, tuple[Any, np.ndarray]] = {
    "contrast": (contrast, FACTORS),
    "hue": (hue, DELTAS),
    "saturation": (saturation, FACTORS),
}


@cache
def in_rows_of_eight(name: str) -> Vectorized:
    """Return an adjustment of full batches, made once for all tests."""
    return vectorize(ADJUSTMENTS[name][0], inputs={"x": spec(4, 3, 3), "f": spec()}, buckets=(8,))


def spaces(images: tf.Tensor) -> list[tf.Tensor]:
    return [tf.image.rgb_to_hsv(images), tf.image.hsv_to_rgb(images), tf.image.rgb_to_hsv(images[0, 0])]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_spaces(dtype: str) -> None:
    check_loopless(spaces, {"images": IMAGES.astype(dtype)}, buckets=None if dtype == "float32" else ONE_BUCKET)


@pytest.mark.parametrize("name", ADJUSTMENTS)
def test_factor_of_each_row(name: str) -> None:
    adjust, factors = ADJUSTMENTS[name]
    check_loopless(adjust, {"x": IMAGES, "f": factors})


@pytest.mark.parametrize("name", ADJUSTMENTS)
def test_every_factor_on_every_image(name: str) -> None:
    adjust, factors = ADJUSTMENTS[name]
    for shift in range(1, 8):
        shifted = np.roll(factors, shift)
        want = np.stack([adjust(x, f) for x, f in zip(IMAGES, shifted, strict=True)])
        np.testing.assert_allclose(in_rows_of_eight(name)(x=IMAGES, f=shifted), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ADJUSTMENTS)
def test_factor_of_all_rows_and_image_of_all_rows(name: str) -> None:
    adjust, factors = ADJUSTMENTS[name]
    factor = float(factors[-1])
    check_loopless(lambda x: adjust(x, factor), {"x": IMAGES})
    check_loopless(lambda f: adjust(IMAGE, f), {"f": factors})


@pytest.mark.parametrize("name", ADJUSTMENTS)
def test_several_images_of_one_example(name: str) -> None:
    adjust, factors = ADJUSTMENTS[name]
    pairs = np.stack([IMAGES, IMAGES[::-1]], 1)
    check_loopless(adjust, {"x": pairs, "f": factors})


@pytest.mark.parametrize("name", ADJUSTMENTS)
def test_bytes_and_halves_are_adjusted_as_floats(name: str) -> None:
    adjust, factors = ADJUSTMENTS[name]
    check_loopless(adjust, {"x": (IMAGES * 255).astype(np.uint8), "f": factors}, buckets=ONE_BUCKET)


def test_hue_of_colours_out_of_range_and_of_several_turns() -> None:
    x = RNG.normal(size=(8, 64, 3, 3)).astype(np.float32)
    delta = RNG.uniform(-3, 3, size=8).astype(np.float32)
    vectorized = vectorize(
        lambda x, d: tf.raw_ops.AdjustHue(images=x, delta=d), inputs={"x": spec(64, 3, 3), "d": spec()}, buckets=(8,)
    )
    want = np.stack([tf.raw_ops.AdjustHue(images=i, delta=d) for i, d in zip(x, delta, strict=True)])
    np.testing.assert_allclose(vectorized(x=x, d=delta), want, rtol=0, atol=1e-6)


def test_hue_so_large_that_the_kernel_never_ends_is_answered_and_a_smaller_one_is_the_kernels() -> None:
    """One number that a caller sends must not keep a core of the server for ever."""
    x = IMAGES[5:6, :1, :1]
    vectorized = vectorize(
        lambda x, d: tf.raw_ops.AdjustHue(images=x, delta=d), inputs={"x": spec(1, 1, 3), "d": spec()}, buckets=(1, 2)
    )
    sixths = np.float32(2.0) ** [22, 24, 25, 25, 25.5, 26, 26.9, 27] + np.float32([1, 2, 0, 8, 4, 0, 0, 0])
    for delta in np.concatenate([sixths, -sixths]) / 6:
        want = tf.raw_ops.AdjustHue(images=x[0], delta=delta)
        np.testing.assert_allclose(vectorized(x=x, d=[delta])[0], want, rtol=0, atol=1e-6)
    for delta in (1e18, -1e18, 3e38, np.inf, -np.inf, np.nan):
        answer = in_time(lambda delta=delta: vectorized(x=np.repeat(x, 2, 0), d=[delta, 0.0]))
        np.testing.assert_allclose(answer[1], x[0], atol=1e-6)
        assert np.isfinite(answer[0]).all() == (abs(delta) < 1e30)


@pytest.mark.parametrize("name", ADJUSTMENTS)
def test_any_number_in_an_image_ends(name: str) -> None:
    """Of all that the kernels of colours take, the turn of the hue alone can keep them."""
    adjust, factors = ADJUSTMENTS[name]
    specials = np.float32([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45])
    pixels = np.stack(np.meshgrid(specials, specials, specials), -1).reshape(1, 1, -1, 3)
    for function in (lambda x: adjust(x, 0.3), tf.image.hsv_to_rgb, tf.image.rgb_to_hsv):
        in_time(lambda function=function: function(tf.constant(pixels)))
    vectorized = vectorize(adjust, inputs={"x": spec(*pixels.shape[1:]), "f": spec()}, buckets=(1,))
    for factor in (factors[3], *specials):
        in_time(lambda factor=factor: vectorized(x=pixels, f=[factor]))


def test_saturation_of_a_hue_that_rounds_to_a_whole_turn_is_the_kernels() -> None:
    """For such a pixel the kernel finds no sector and answers grey."""
    pixel = np.array([1.0, 0.5, np.nextafter(np.float32(0.5), np.float32(1))], np.float32)
    x = np.broadcast_to(pixel, (8, 2, 2, 3)).copy()
    x[1::2] = RNG.normal(size=(4, 2, 2, 3))
    vectorized = check_loopless(saturation, {"x": x, "f": FACTORS})
    grey = vectorized(x=x[:1], f=[1.0])[0, 0, 0]
    assert grey.tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 1e20, 1e-40])
@pytest.mark.parametrize("name", ["hue", "saturation"])
def test_special_numbers_become_what_the_kernel_makes_of_them(name: str, special: float) -> None:
    adjust, factors = ADJUSTMENTS[name]
    x = RNG.normal(size=(8, 4, 3, 3)).astype(np.float32)
    x.reshape(-1)[RNG.integers(0, x.size, x.size // 4)] = special
    got = in_rows_of_eight(name)(x=x, f=factors)
    rounding = 1e-6 * np.abs(x[np.isfinite(x)]).max()
    for row in range(8):
        want = adjust(tf.constant(x[row]), tf.constant(factors[row]))
        np.testing.assert_allclose(got[row], want, rtol=1e-5, atol=rounding)


def test_factor_of_each_row_on_halves_is_refused_by_name() -> None:
    def predict(x: tf.Tensor, f: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.AdjustContrastv2(images=tf.cast(x, tf.float16), contrast_factor=f)

    with pytest.raises(LoopedOpError, match=r"AdjustContrastv2 .* float32 images alone"):
        vectorize(predict, inputs={"x": spec(4, 3, 3), "f": spec()}, buckets=(2,))
