"""Depthwise convolutions and their derivatives.

pfor has converters for these that pass on to a loop over the rows as soon as the filter is shared, as it is in
every network: 17 hidden loops in MobileNetV2, 3.2 times slower than batched by hand at 64 rows. With a shared
filter the rows are images of one batch. With a filter of each row, and for the derivative by the filter, they are
groups of channels: a depthwise convolution never mixes channels.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, wrap
from vectorizer.converters.folding import (
    folded,
    folded_channels,
    reshape_to,
    sizes,
    unfolded,
    unfolded_channels,
)

__all__ = ["CONVERTERS"]


def _need_channels_last(pfor_input: Any) -> None:
    if pfor_input.get_attr("data_format") != b"NHWC":
        not_for_these("rows fold into channels only where they come last; use data_format='NHWC'")


def _forward(pfor_input: Any) -> Any:
    """Shapes: images [rows, n, h, w, c], filter [kh, kw, c, m] or with rows -> [rows, n, h', w', c * m]."""
    images = stacked(pfor_input.input(0), pfor_input)
    kernel, kernel_is_stacked, _ = pfor_input.input(1)
    rows = sizes(images)[0]
    if not kernel_is_stacked:
        (product,) = same_op(pfor_input, [folded(images), kernel])
        return wrap(unfolded(product, rows), stacked=True)
    _need_channels_last(pfor_input)
    (product,) = same_op(pfor_input, [folded_channels(images), folded_channels(kernel, axis=-2)])
    return wrap(unfolded_channels(product, rows), stacked=True)


def _backprop_input(pfor_input: Any) -> Any:
    """Shapes: sizes [4], filter [kh, kw, c, m] or with rows, gradients [rows, n, h', w', c * m] -> images."""
    n, *rest = tf.unstack(pfor_input.unstacked_input(0), 4)
    kernel, kernel_is_stacked, _ = pfor_input.input(1)
    gradients = stacked(pfor_input.input(2), pfor_input)
    rows = sizes(gradients)[0]
    if not kernel_is_stacked:
        (images,) = same_op(pfor_input, [tf.stack([n * rows, *rest]), kernel, folded(gradients)])
        return wrap(unfolded(images, rows), stacked=True)
    _need_channels_last(pfor_input)
    height, width, channels = rest
    (images,) = same_op(
        pfor_input,
        [
            tf.stack([n, height, width, channels * rows]),
            folded_channels(kernel, axis=-2),
            folded_channels(gradients),
        ],
    )
    return wrap(unfolded_channels(images, rows), stacked=True)


def _backprop_filter(pfor_input: Any) -> Any:
    """Shapes: images [rows, n, h, w, c], sizes [4], gradients [rows, n, h', w', c * m] -> [rows, kh, kw, c, m]."""
    _need_channels_last(pfor_input)
    images = stacked(pfor_input.input(0), pfor_input)
    height, width, channels, multiplier = tf.unstack(pfor_input.unstacked_input(1), 4)
    gradients = stacked(pfor_input.input(2), pfor_input)
    rows = sizes(images)[0]
    (kernels,) = same_op(
        pfor_input,
        [
            folded_channels(images),
            tf.stack([height, width, channels * rows, multiplier]),
            folded_channels(gradients),
        ],
    )
    known = pfor_input.outputs[0].shape
    if known.is_fully_defined():
        kernels = reshape_to(kernels, [*known[:2], known[2] * rows, known[3]])
    return wrap(unfolded_channels(kernels, rows, axis=-2), stacked=True)


CONVERTERS: dict[str, Converter] = {
    "DepthwiseConv2dNative": _forward,
    "DepthwiseConv2dNativeBackpropFilter": _backprop_filter,
    "DepthwiseConv2dNativeBackpropInput": _backprop_input,
}
