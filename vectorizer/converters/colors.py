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
#: From here on float32 has only each fourth whole number.
_EXACT = 2.0**25


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
    return _adjust(pfor_input, _saturated)


def _saturated(images: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Multiply the saturation.

    Not by way of RGBToHSV and HSVToRGB: for a hue just below a whole turn, which rounds to one, the kernel has no
    sector and answers grey, and so must a batch. Its comparisons also decide what a NaN becomes.
    """
    red, green, blue = tf.split(images, 3, -1)
    value = _upper(red, _upper(green, blue))
    spread = value - _lower(red, _lower(green, blue))
    per_sector = 1.0 / (_N_SECTORS * spread)
    hue = tf.where(
        red == value,
        per_sector * (green - blue),
        tf.where(green == value, per_sector * (blue - red) + 2 / 6, per_sector * (red - green) + 4 / 6),
    )
    hue = tf.where(spread <= 0, 0.0, hue)
    hue = tf.where(hue < 0, hue + 1.0, hue) * _N_SECTORS
    saturation = tf.where(value > 0, spread / value, 0.0) * factor
    chroma = _lower(tf.ones([]), _upper(tf.zeros([]), saturation)) * value
    middle = chroma * (1.0 - tf.abs(tf.math.floormod(hue, 2.0) - 1.0))
    none = tf.zeros_like(chroma)
    return _channels(tf.floor(hue), chroma, middle, none, otherwise=(none, none, none)) + (value - chroma)


def _lower(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.where(b < a, b, a)


def _upper(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.where(a < b, b, a)


def _channels(
    sector: tf.Tensor,
    largest: tf.Tensor,
    middle: tf.Tensor,
    smallest: tf.Tensor,
    *,
    otherwise: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
) -> tf.Tensor:
    """Put the three values of each pixel on the channels that its sector says. Shapes: [..., 1] -> [..., 3]."""
    red = (largest, middle, smallest, smallest, middle, largest)
    # Green is as red was two sectors before, and blue as green.
    green, blue = (red[4:] + red[:4]), (red[2:] + red[:2])
    return tf.concat(
        [_of_sector(sector, values, other) for values, other in zip((red, green, blue), otherwise, strict=True)], -1
    )


def _of_sector(sector: tf.Tensor, by_sector: tuple[tf.Tensor, ...], otherwise: tf.Tensor) -> tf.Tensor:
    chosen = otherwise
    for number, value in enumerate(by_sector):
        chosen = tf.where(sector == number, value, chosen)
    return chosen


def _hue(pfor_input: Any) -> Any:
    return _adjust(pfor_input, _turned)


def _turned(images: tf.Tensor, delta: tf.Tensor) -> tf.Tensor:
    """Turn the colour circle by ``delta`` of a whole turn.

    A pixel is its largest, middle and smallest channel and the sector that says which channel is which; the place
    within the sector is where the middle one lies between the others.
    """
    red, green, blue = tf.split(images, 3, -1)
    sector = tf.where(
        red < green,
        tf.where(blue < red, 1.0, tf.where(blue > green, 3.0, 2.0)),
        tf.where(blue < green, 0.0, tf.where(blue > red, 4.0, 5.0)),
    )
    # By the sector, and not by minimum and maximum: which channel is which is settled even where one is a NaN.
    largest = _of_sector(sector, (red, green, green, blue, blue), red)
    middle = _of_sector(sector, (green, red, blue, green, red), blue)
    smallest = _of_sector(sector, (blue, blue, red, red, green), green)
    place = (middle - smallest) / (largest - smallest)
    falls = tf.math.floormod(sector, 2.0) > 0
    hue = tf.where(largest == smallest, 0.0, sector + tf.where(falls, 1.0 - place, place))
    hue = tf.math.floormod(_counted_down(hue + delta * _N_SECTORS), float(_N_SECTORS))
    # A tiny negative number plus 6 rounds to 6.
    hue = tf.where(hue >= _N_SECTORS, hue - _N_SECTORS, hue)
    sector = tf.floor(hue)
    place = hue - sector
    falls = tf.math.floormod(sector, 2.0) > 0
    middle = smallest + tf.where(falls, 1.0 - place, place) * (largest - smallest)
    return _channels(sector, largest, middle, smallest, otherwise=(largest, smallest, middle))


def _counted_down(hue: tf.Tensor) -> tf.Tensor:
    """Return the hue from which on the kernel, which takes off six at a time, takes off six without an error.

    Where floats are four or eight apart its difference is rounded, so that all count down to one number; where they are
    further apart it changes nothing and the kernel never ends, and here the hue is that number too.
    """
    size = tf.abs(hue)
    is_rounded = (size > _EXACT + 4) & (size <= hue.dtype.max)
    return tf.where(is_rounded, tf.sign(hue) * _EXACT, hue)


CONVERTERS: dict[str, Converter] = {
    "AdjustContrastv2": _contrast,
    "AdjustHue": _hue,
    "AdjustSaturation": _saturation,
    "HSVToRGB": _pixelwise,
    "RGBToHSV": _pixelwise,
}
