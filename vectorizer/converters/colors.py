"""Colours of images: RGB and HSV, contrast, hue and saturation.

With one factor for all rows the kernels take the stacked images as they are. A factor of each row they can't take
(they want a scalar), so it is written out from the definition of the op, which for hue and saturation is that of
TensorFlow's CPU kernels (adjust_hue_op.cc, adjust_saturation_op.cc): the same numbers, down to the rounding of
single steps.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, wrap
from vectorizer.converters.folding import reshape_to, sizes

__all__ = ["CONVERTERS"]

#: Sixths of the colour circle, from red over green and blue to red.
_N_SECTORS = 6


def _pixelwise(pfor_input: Any) -> Any:
    return [wrap(output, stacked=True) for output in same_op(pfor_input, [pfor_input.stacked_input(0)])]


def _of_each_row(factor: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
    """Give a factor of each row the rank of the images: [rows] -> [rows, 1, ...]."""
    return reshape_to(factor, [sizes(images)[0], *[1] * (len(images.shape) - 1)])


def _adjust(pfor_input: Any, adjusted: Any) -> Any:
    images = stacked(pfor_input.input(0), pfor_input)
    factor, factor_is_stacked, _ = pfor_input.input(1)
    if not factor_is_stacked:
        (output,) = same_op(pfor_input, [images, factor])
        return wrap(output, stacked=True)
    if images.dtype != tf.float32:
        not_for_these(f"a factor of each row is written out for float32 images alone, not {images.dtype.name}")
    return wrap(adjusted(images, _of_each_row(factor, images)), stacked=True)


def _contrast(pfor_input: Any) -> Any:
    def adjusted(images: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
        mean = tf.reduce_mean(images, [-3, -2], keepdims=True)
        return (images - mean) * factor + mean

    return _adjust(pfor_input, adjusted)


def _saturation(pfor_input: Any) -> Any:
    def adjusted(images: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
        hue, saturation, value = tf.split(tf.image.rgb_to_hsv(images), 3, -1)
        saturation = tf.minimum(tf.maximum(saturation * factor, 0.0), 1.0)
        return tf.image.hsv_to_rgb(tf.concat([hue, saturation, value], -1))

    return _adjust(pfor_input, adjusted)


def _hue(pfor_input: Any) -> Any:
    return _adjust(pfor_input, _turned)


def _turned(images: tf.Tensor, delta: tf.Tensor) -> tf.Tensor:
    """Turn the colour circle by ``delta`` of a whole turn.

    A pixel is its largest, middle and smallest channel and the sector that says which channel is which; the place
    within the sector is where the middle one lies between the others.
    """
    red, green, blue = tf.split(images, 3, -1)
    largest, smallest = (reduce(images, -1, keepdims=True) for reduce in (tf.reduce_max, tf.reduce_min))
    # The middle one by comparison, as the sum of the three minus the others would round.
    middle = tf.maximum(tf.minimum(red, green), tf.minimum(tf.maximum(red, green), blue))
    sector = tf.where(
        red < green,
        tf.where(blue < red, 1.0, tf.where(blue > green, 3.0, 2.0)),
        tf.where(blue < green, 0.0, tf.where(blue > red, 4.0, 5.0)),
    )
    place = (middle - smallest) / (largest - smallest)
    falls = tf.math.floormod(sector, 2.0) > 0
    hue = tf.where(largest == smallest, 0.0, sector + tf.where(falls, 1.0 - place, place))
    hue = tf.math.floormod(hue + delta * _N_SECTORS, float(_N_SECTORS))
    # A tiny negative number plus 6 rounds to 6.
    hue = tf.where(hue >= _N_SECTORS, hue - _N_SECTORS, hue)
    sector = tf.floor(hue)
    place = hue - sector
    falls = tf.math.floormod(sector, 2.0) > 0
    middle = smallest + tf.where(falls, 1.0 - place, place) * (largest - smallest)

    def channel(*by_sector: tf.Tensor) -> tf.Tensor:
        chosen = by_sector[-1]
        for number, value in reversed(list(enumerate(by_sector[:-1]))):
            chosen = tf.where(sector == number, value, chosen)
        return chosen

    return tf.concat(
        [
            channel(largest, middle, smallest, smallest, middle, largest),
            channel(middle, largest, largest, middle, smallest, smallest),
            channel(smallest, smallest, middle, largest, largest, middle),
        ],
        -1,
    )


CONVERTERS: dict[str, Converter] = {
    "AdjustContrastv2": _contrast,
    "AdjustHue": _hue,
    "AdjustSaturation": _saturation,
    "HSVToRGB": _pixelwise,
    "RGBToHSV": _pixelwise,
}
