"""Convolutions whose filter differs from row to row, in two and three dimensions, with their derivatives.

With a shared filter the rows are images of one batch. With a filter of each row a convolution is one matrix product
of each row: the patches under the filter, taken apart by slicing, times the filter as a matrix. The derivative by
the filter is such a product too, and the only one that has no form without patches: pfor loops over the rows for it.

Dilation is the convolution of (max, +). It never mixes channels, and the rows become groups of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, stock_registry, wrap
from vectorizer.converters.constants import known_operand
from vectorizer.converters.folding import (
    batch_folding,
    folded,
    folded_channels,
    sizes,
    unfolded,
    unfolded_channels,
)

__all__ = ["CONVERTERS"]

#: More slices than this are no longer a sensible graph: an 11 x 11 filter has 121.
_MOST_TAPS = 256
#: From so many on, a window's channels are worth a product by themselves.
_MANY_CHANNELS = 32


class _Geometry:
    """Where the patches of a convolution lie. Everything is known when the graph is built, or it refuses."""

    def __init__(self, pfor_input: Any, *, images: Sequence[Any], kernel: Sequence[Any], channels: int | None) -> None:
        """``images`` [n, *space, c] and ``kernel`` [*space, c, o] are shapes; ``channels`` those of the images."""
        if pfor_input.get_attr("data_format") not in (b"NHWC", b"NDHWC"):
            not_for_these("a filter of each row needs channels to come last; use data_format='NHWC'")
        self.space = list(images[1:-1])
        self.taps = list(kernel[:-2])
        if not all(isinstance(size, int) for size in (*self.space, *kernel)):
            not_for_these("a filter of each row needs known sizes")
        #: Channels that the filter does not mix: as often as its own go into those of the images.
        self.n_groups = (channels or 0) // kernel[-2] if kernel[-2] else 0
        if channels is None or self.n_groups * kernel[-2] != channels or self.n_groups == 0:
            not_for_these("a filter of each row needs a known number of channels")
        if prod(self.taps) > _MOST_TAPS:
            not_for_these(f"a filter of each row is taken apart, up to {_MOST_TAPS} places, not {prod(self.taps)}")
        self.strides = list(pfor_input.get_attr("strides"))[1:-1]
        self.dilations = list(pfor_input.get_attr("dilations"))[1:-1]
        self.spans = [(taps - 1) * step + 1 for taps, step in zip(self.taps, self.dilations, strict=True)]
        padding = pfor_input.get_attr("padding")
        if padding == b"EXPLICIT":
            flat = list(pfor_input.get_attr("explicit_paddings"))[2:-2]
            self.paddings = list(zip(flat[::2], flat[1::2], strict=True))
        elif padding == b"SAME":
            self.paddings = [self._same(dim) for dim in range(len(self.space))]
        else:
            self.paddings = [(0, 0)] * len(self.space)
        self.reach = [
            (size + before + after - span) // stride + 1
            for size, (before, after), span, stride in zip(
                self.space, self.paddings, self.spans, self.strides, strict=True
            )
        ]
        if min([*self.reach, *self.space]) < 1:
            not_for_these("a filter of each row is larger than the image")

    def _same(self, dim: int) -> tuple[int, int]:
        size, stride = self.space[dim], self.strides[dim]
        total = max((-(-size // stride) - 1) * stride + self.spans[dim] - size, 0)
        return total // 2, total - total // 2

    def windows(self, images: tf.Tensor) -> list[tf.Tensor]:
        """Return what lies under each place of the filter, for all places of the filter on the image.

        Shapes: [rows, n, *space, c] -> [rows, n, *reach, c] for each tap.
        """
        padded = tf.pad(images, [(0, 0), (0, 0), *self.paddings, (0, 0)])
        windows = []
        for tap in product(*map(range, self.taps)):
            steps = zip(tap, self.dilations, self.reach, self.strides, strict=True)
            window = [
                slice(place * dilation, place * dilation + (reach - 1) * stride + 1, stride)
                for place, dilation, reach, stride in steps
            ]
            windows.append(padded[(slice(None), slice(None), *window)])
        return windows

    def patches(self, images: tf.Tensor) -> tf.Tensor:
        """Return what lies under the filter at each place.

        Shapes: [rows, n, *space, c] -> [rows, n * places, taps * c].
        """
        rows, n, *_, channels = sizes(images)
        windows = self.windows(images)
        joined = windows[0] if len(windows) == 1 else tf.concat(windows, -1)
        return tf.reshape(joined, [rows, n * prod(self.reach), prod(self.taps) * channels])


def _matrix(kernel: tf.Tensor, n_groups: int) -> tf.Tensor:
    """Shapes: [rows, *taps, c, o] -> [rows, taps * c, o], or with groups before the last two."""
    rows, *inner, outputs = sizes(kernel)
    flat = tf.reshape(kernel, [rows, prod(inner), outputs])
    if n_groups == 1:
        return flat
    return tf.transpose(tf.reshape(flat, [rows, prod(inner), n_groups, outputs // n_groups]), [0, 2, 1, 3])


def _split_groups(value: tf.Tensor, n_groups: int, n_taps: int = 1) -> tf.Tensor:
    """Shapes: [rows, places, taps * groups * c] -> [rows, groups, places, taps * c]; as it is if there is one group."""
    if n_groups == 1:
        return value
    rows, places, depth = sizes(value)
    each = depth // n_taps // n_groups
    split = tf.reshape(value, [rows, places, n_taps, n_groups, each])
    return tf.reshape(tf.transpose(split, [0, 3, 1, 2, 4]), [rows, n_groups, places, n_taps * each])


def _joined_groups(value: tf.Tensor, n_groups: int, n_taps: int = 1) -> tf.Tensor:
    """Undo ``_split_groups``."""
    if n_groups == 1:
        return value
    rows, _, places, depth = sizes(value)
    split = tf.reshape(value, [rows, n_groups, places, n_taps, depth // n_taps])
    return tf.reshape(tf.transpose(split, [0, 2, 3, 1, 4]), [rows, places, n_groups * depth])


def _forward(pfor_input: Any) -> Any:
    images = stacked(pfor_input.input(0), pfor_input)
    kernel, kernel_is_stacked, _ = pfor_input.input(1)
    rows, n, *_ = sizes(images)
    if not kernel_is_stacked:
        (convolved,) = same_op(pfor_input, [folded(images), kernel])
        return wrap(unfolded(convolved, rows), stacked=True)
    shape = sizes(images)
    place = _Geometry(pfor_input, images=shape[1:], kernel=sizes(kernel)[1:], channels=shape[-1])
    patches = _split_groups(place.patches(images), place.n_groups, prod(place.taps))
    convolved = _joined_groups(tf.matmul(patches, _matrix(kernel, place.n_groups)), place.n_groups)
    return wrap(tf.reshape(convolved, [rows, n, *place.reach, sizes(kernel)[-1]]), stacked=True)


def _sizes_given(pfor_input: Any, index: int) -> list[int] | None:
    """Return sizes that the op is given: a derivative takes them from the shape of what it is the derivative by."""
    given = pfor_input.op.inputs[index]
    known = known_operand(pfor_input, index)
    if known is None and given.op.type == "ShapeN":
        shape = given.op.inputs[given.value_index].shape
        known = shape.as_list() if shape.is_fully_defined() else None
    return None if known is None else [int(size) for size in known]


def _known_sizes(pfor_input: Any, index: int) -> list[int]:
    known = _sizes_given(pfor_input, index)
    if known is None:
        not_for_these("a filter of each row needs known sizes")
    return known


def _backprop_filter(pfor_input: Any) -> Any:
    """Shapes: images [rows, n, *space, c], filter sizes, gradients [rows, n, *reach, o] -> [rows, *taps, c, o]."""
    if not pfor_input.input(0).is_stacked and pfor_input.op_type == "Conv2DBackpropFilter":
        return _of_shared_images(pfor_input)
    images, gradients = (stacked(pfor_input.input(index), pfor_input) for index in (0, 2))
    pfor_input.unstacked_input(1)
    shape, kernel = sizes(images), _known_sizes(pfor_input, 1)
    place = _Geometry(pfor_input, images=shape[1:], kernel=kernel, channels=shape[-1])
    by_place = tf.reshape(gradients, [shape[0], shape[1] * prod(place.reach), kernel[-1]])
    if place.n_groups > 1:
        multiplied = _by_groups
    else:
        # 32 to 64 channels: 200 ms by taps, 240 by columns; 32 to 640, as in a Jacobian: 230 and 107.
        has_many = shape[-1] >= _MANY_CHANNELS and 2 * shape[-1] >= kernel[-1]
        multiplied = _of_each_tap if has_many else _of_columns
    return wrap(tf.reshape(multiplied(images, by_place, place), [shape[0], *kernel]), stacked=True)


def _of_shared_images(pfor_input: Any) -> Any:
    """Make the rows further outputs of the filter, as pfor does.

    Its sizes stay known here, so that a Jacobian, in which the images differ from row to row after all, knows them.
    Shapes: images [n, *space, c], filter sizes, gradients [rows, n, *reach, o] -> [rows, *taps, c, o].
    """
    images = pfor_input.unstacked_input(0)
    kernel = _sizes_given(pfor_input, 1)
    gradients = stacked(pfor_input.input(2), pfor_input)
    if (
        kernel is None
        or kernel[-2] != images.shape[-1]
        or gradients.shape[0] is None
        or pfor_input.get_attr("data_format") != b"NHWC"
    ):
        return stock_registry()[pfor_input.op_type](pfor_input)
    rows = gradients.shape[0]
    all_outputs = tf.constant([*kernel[:-1], rows * kernel[-1]], tf.int32)
    (of_kernel,) = same_op(pfor_input, [images, all_outputs, folded_channels(gradients)])
    return wrap(unfolded_channels(of_kernel, rows), stacked=True)


def _of_each_tap(images: tf.Tensor, by_place: tf.Tensor, place: _Geometry) -> tf.Tensor:
    """Multiply each tap's window alone: patches hold every element of the image once for each tap.

    Shapes: [rows, n, *space, c], [rows, n * places, o] -> [rows, taps, c, o].
    """
    rows, n_places, _ = sizes(by_place)
    flat = [tf.reshape(window, [rows, n_places, sizes(images)[-1]]) for window in place.windows(images)]
    return tf.stack([tf.matmul(window, by_place, transpose_a=True) for window in flat], 1)


def _of_columns(images: tf.Tensor, by_place: tf.Tensor, place: _Geometry) -> tf.Tensor:
    """Multiply patches that were made the other way round: a few channels are too short a run to copy.

    Shapes: [rows, n, *space, c], [rows, n * places, o] -> [rows, taps * c, o].
    """
    rows, *inner, channels = sizes(images)
    # Each channel becomes an image of its own, with one channel.
    moved = tf.transpose(images, [0, len(inner) + 1, *range(1, len(inner) + 1)])
    alone = tf.reshape(moved, [rows, channels * inner[0], *inner[1:], 1])
    columns = tf.stack(place.windows(alone), 1)
    return tf.matmul(tf.reshape(columns, [rows, prod(place.taps) * channels, sizes(by_place)[1]]), by_place)


def _by_groups(images: tf.Tensor, by_place: tf.Tensor, place: _Geometry) -> tf.Tensor:
    """Shapes: [rows, n, *space, c], [rows, n * places, o] -> [rows, taps * c / groups, groups, o / groups]."""
    patches = _split_groups(place.patches(images), place.n_groups, prod(place.taps))
    of_kernel = tf.matmul(patches, _split_groups(by_place, place.n_groups), transpose_a=True)
    return tf.transpose(of_kernel, [0, 2, 1, 3])


def _backprop_input(pfor_input: Any) -> Any:
    """Shapes: the images' sizes, filter [*taps, c, o] or with rows, gradients [rows, n, *reach, o] -> images."""
    input_sizes = pfor_input.unstacked_input(0)
    kernel, kernel_is_stacked, _ = pfor_input.input(1)
    gradients = stacked(pfor_input.input(2), pfor_input)
    rows = sizes(gradients)[0]
    if not kernel_is_stacked:
        n, *rest = tf.unstack(input_sizes)
        (images,) = same_op(pfor_input, [tf.stack([n * rows, *rest]), kernel, folded(gradients)])
        return wrap(unfolded(images, rows), stacked=True)
    shape = _known_sizes(pfor_input, 0)
    place = _Geometry(pfor_input, images=shape, kernel=sizes(kernel)[1:], channels=shape[-1])
    # Patches are linear in the images: the derivative of taking them apart puts them together.
    images = tf.zeros([rows, *shape], gradients.dtype)
    patches = place.patches(images)
    by_place = tf.reshape(gradients, [rows, sizes(patches)[1], sizes(kernel)[-1]])
    groups = place.n_groups
    of_patches = tf.matmul(_split_groups(by_place, groups), _matrix(kernel, groups), transpose_b=True)
    of_patches = _joined_groups(of_patches, groups, prod(place.taps))
    (of_images,) = tf.gradients(patches, images, grad_ys=of_patches)
    return wrap(of_images, stacked=True)


def _dilation(pfor_input: Any) -> Any:
    """Shapes: images [rows, n, h, w, c], filter [kh, kw, c] or with rows; derivatives take gradients as well."""
    if not pfor_input.input(1).is_stacked and pfor_input.op_type != "Dilation2DBackpropFilter":
        return batch_folding({0, 2} if pfor_input.num_inputs == 3 else {0})(pfor_input)
    operands = [stacked(value, pfor_input) for value in pfor_input.inputs]
    rows = sizes(operands[0])[0]
    (dilated,) = same_op(pfor_input, [folded_channels(operand) for operand in operands])
    return wrap(unfolded_channels(dilated, rows), stacked=True)


CONVERTERS: dict[str, Converter] = {
    "Conv2D": _forward,
    "Conv2DBackpropFilter": _backprop_filter,
    "Conv2DBackpropInput": _backprop_input,
    "Conv3D": _forward,
    "Conv3DBackpropFilterV2": _backprop_filter,
    "Conv3DBackpropInputV2": _backprop_input,
    "Dilation2D": _dilation,
    "Dilation2DBackpropFilter": _dilation,
    "Dilation2DBackpropInput": _dilation,
}
