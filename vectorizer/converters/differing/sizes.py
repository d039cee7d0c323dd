"""Sizes that depend on the example: Range, Fill, Tile, BroadcastTo, Pad, SplitV, ReverseV2.

Nothing bounds most of them, so that the padded size is the longest row's, and XLA can't compile it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, stacked, wrap_differing
from vectorizer.converters.constants import known_operand
from vectorizer.converters.differing.operands import operand, rank_of, require
from vectorizer.converters.masks import current_mask
from vectorizer.converters.slicing import entries
from vectorizer.differing import Differing, longest, rows_in

__all__ = ["CONVERTERS", "SOURCES"]


def _range(pfor_input: Any) -> Any:
    start, limit, delta = (stacked(value, pfor_input) for value in pfor_input.inputs)
    if start.dtype.is_floating:
        count = tf.cast(tf.math.ceil(tf.abs((limit - start) / delta)), tf.int32)
    else:
        count = tf.cast(-tf.math.floordiv(start - limit, delta), tf.int32)
    is_forward = tf.where(delta > 0, start <= limit, start >= limit) & (delta != 0)
    count = require(is_forward, _asked_for(tf.maximum(count, 0)), "tf.range does not get from start to limit")
    steps = tf.cast(tf.range(longest(count)), start.dtype)
    dense = start[:, tf.newaxis] + steps * delta[:, tf.newaxis]
    return wrap_differing(Differing(dense, (count,)), pfor_input.outputs[0].shape)


def _sizes_of(pfor_input: Any, position: int, rank: int) -> list[Any]:
    """Return the entries of a vector of sizes: numbers where they are known, else int32 [rows]."""
    known = entries(pfor_input.op.inputs[position])
    own = stacked(pfor_input.inputs[position], pfor_input)
    if len(known) != rank:
        not_for_these("the number of dimensions is not known")
    sizes: list[Any] = list(known)
    for dim, size in enumerate(known):
        if size is None:
            asked = _asked_for(tf.cast(own[:, dim], tf.int32))
            sizes[dim] = require(asked >= 0, asked, "a size is negative")
    return sizes


def _asked_for(size: tf.Tensor) -> tf.Tensor:
    """Return sizes, 0 for rows that a piece of the graph is not for: theirs may be anything. Shapes: [rows]."""
    mask = current_mask()
    return size if mask is None else tf.where(mask, size, 0)


def _shaped(pfor_input: Any, dense: tf.Tensor, sizes: list[Any]) -> Any:
    """Broadcast each row to its own sizes. Shapes: dense [rows, *s], s of the same rank as sizes."""
    shape = pfor_input.outputs[0].shape
    widths = [
        known if known is not None else longest(size) if isinstance(size, tf.Tensor) else size
        for known, size in zip(shape, sizes, strict=True)
    ]
    dense = tf.broadcast_to(dense, [rows_in(dense, 0), *widths])
    return wrap_differing(Differing(dense, _lengths(sizes)), shape)


def _lengths(sizes: list[Any]) -> tuple[tf.Tensor | None, ...]:
    return tuple(size if isinstance(size, tf.Tensor) else None for size in sizes)


def _fill(pfor_input: Any) -> Any:
    rank = pfor_input.outputs[0].shape.rank
    if rank is None:
        not_for_these("the number of dimensions is not known")
    value = stacked(pfor_input.inputs[1], pfor_input)
    return _shaped(pfor_input, tf.reshape(value, [-1, *[1] * rank]), _sizes_of(pfor_input, 0, rank))


def _broadcast_to(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    rank = pfor_input.outputs[0].shape.rank
    if rank is None or not value.dense.shape[1:].is_fully_defined() or not value.is_fixed:
        not_for_these("what is broadcast has no fixed size")
    sizes = _sizes_of(pfor_input, 1, rank)
    had = [1] * (rank - len(value.lengths)) + value.dense.shape.as_list()[1:]
    if any(size != 1 and isinstance(wanted, tf.Tensor) for size, wanted in zip(had, sizes, strict=True)):
        if pfor_input.outputs[0].shape.is_fully_defined():
            sizes = pfor_input.outputs[0].shape.as_list()
        else:
            sizes = [size if size != 1 else wanted for size, wanted in zip(had, sizes, strict=True)]
    return _shaped(pfor_input, tf.reshape(value.dense, [-1, *had]), sizes)


def _tile(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    for dim, times in enumerate(_sizes_of(pfor_input, 1, rank_of(pfor_input, 0))):
        if isinstance(times, int) and times == 1:
            continue
        axis, size = dim + 1, value.size(dim)
        total = size * times
        lengths = (*value.lengths[:dim], tf.broadcast_to(total, tf.shape(value.dense)[:1]), *value.lengths[dim + 1 :])
        if isinstance(times, int) and value.lengths[dim] is None:
            multiples = [1] * len(value.dense.shape)
            multiples[axis] = times
            value = Differing(tf.tile(value.dense, multiples), value.lengths)
            continue
        width = longest(total)
        if value.dense.shape[axis] == 1:
            shape = tf.tensor_scatter_nd_update(tf.shape(value.dense), [[axis]], [width])
            value = Differing(tf.broadcast_to(value.dense, shape), lengths)
            continue
        each = tf.maximum(tf.broadcast_to(size, tf.shape(value.dense)[:1]), 1)
        places = tf.range(width)[tf.newaxis] % each[:, tf.newaxis]
        value = Differing(tf.gather(value.dense, places, axis=axis, batch_dims=1), lengths)
    return wrap_differing(value, pfor_input.outputs[0].shape)


def _pad(pfor_input: Any) -> Any:
    value, rank = operand(pfor_input, 0), rank_of(pfor_input, 0)
    known = tf.get_static_value(pfor_input.op.inputs[1], partial=True)
    own = stacked(pfor_input.inputs[1], pfor_input)
    fill = tf.zeros([], value.dense.dtype)
    if len(pfor_input.inputs) > 2:
        if pfor_input.inputs[2].is_stacked:
            not_for_these("what it pads with depends on the example")
        fill = pfor_input.inputs[2].t
    static = pfor_input.outputs[0].shape
    for dim in range(rank):
        pair = (
            [None, None] if known is None else [None if n is None else int(n) for n in np.asarray(known, object)[dim]]
        )
        if pair == [0, 0]:
            continue
        before, after = (tf.cast(own[:, dim, side], tf.int32) for side in (0, 1))
        axis, size = dim + 1, value.size(dim)
        dense = require((before >= 0) & (after >= 0), value.dense, "tf.pad by less than 0")
        total = before + size + after
        wanted = static[dim] if static.rank is not None else None
        place = tf.range(longest(total) if wanted is None else wanted)[tf.newaxis] - before[:, tf.newaxis]
        is_own = (place >= 0) & (place < tf.reshape(size, [-1, 1]))
        taken = tf.gather(dense, tf.clip_by_value(place, 0, rows_in(dense, axis) - 1), axis=axis, batch_dims=1)
        inside = tf.reshape(is_own, [tf.shape(is_own)[0], *[1] * dim, tf.shape(is_own)[1], *[1] * (rank - dim - 1)])
        lengths = (*value.lengths[:dim], total, *value.lengths[dim + 1 :])
        value = Differing(tf.where(inside, taken, fill), lengths)
    return wrap_differing(value, static)


def _split(pfor_input: Any) -> Any:
    """Cut at places of each row's own. Shapes: sizes [rows, n] -> n results."""
    value, rank = operand(pfor_input, 0), rank_of(pfor_input, 0)
    axis = known_operand(pfor_input, 2)
    if axis is None:
        not_for_these("the axis is not a constant")
    dim = int(axis) % rank
    width, total = rows_in(value.dense, dim + 1), value.size(dim)
    sizes = tf.cast(stacked(pfor_input.inputs[1], pfor_input), tf.int32)
    # One size may be -1: what is left.
    left = tf.reshape(total, [-1, 1]) - tf.reduce_sum(tf.maximum(sizes, 0), 1, keepdims=True)
    sizes = tf.where(sizes == -1, left, sizes)
    fits = (tf.reduce_sum(sizes, 1) == total) & tf.reduce_all(sizes >= 0, 1)
    dense = require(fits, value.dense, "tf.split into sizes that are not those of the whole")
    firsts = tf.cumsum(sizes, 1, exclusive=True)
    results = []
    for number, output in enumerate(pfor_input.outputs):
        place = tf.clip_by_value(firsts[:, number, tf.newaxis] + tf.range(width), 0, width - 1)
        part = tf.gather(dense, place, axis=dim + 1, batch_dims=1)
        lengths = (*value.lengths[:dim], sizes[:, number], *value.lengths[dim + 1 :])
        results.append(wrap_differing(Differing(part, lengths), output.shape))
    return results


def _reverse(pfor_input: Any) -> Any:
    value, axes = operand(pfor_input, 0), known_operand(pfor_input, 1)
    if axes is None:
        not_for_these("the axes are not constants")
    dense = value.dense
    for axis in axes.reshape([-1]):
        dim = int(axis) % rank_of(pfor_input, 0)
        length, width = value.lengths[dim], rows_in(dense, dim + 1)
        if length is None:
            dense = tf.reverse(dense, [dim + 1])
            continue
        place = tf.clip_by_value(length[:, tf.newaxis] - 1 - tf.range(width), 0, width - 1)
        dense = tf.gather(dense, place, axis=dim + 1, batch_dims=1)
    return wrap_differing(Differing(dense, value.lengths), pfor_input.outputs[0].shape)


CONVERTERS: dict[str, Converter] = {"ReverseV2": _reverse}
SOURCES: dict[str, Converter] = {
    "BroadcastTo": _broadcast_to,
    "Fill": _fill,
    "Pad": _pad,
    "PadV2": _pad,
    "Range": _range,
    "SplitV": _split,
    "Tile": _tile,
}
