"""Shapes of values of differing length: each row has its own, a value like any other; and changes of shape."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, stacked, wrap, wrap_differing
from vectorizer.converters.constants import known_operand
from vectorizer.converters.differing.operands import axis_of, operand, rank_of, require, reshaped_rows
from vectorizer.differing import Differing, compacted, longest, resized, rows_in

__all__ = ["CONVERTERS"]


def _shape(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    rows = rows_in(value.dense, 0)
    sizes = [tf.broadcast_to(value.size(dim), [rows]) for dim in range(len(value.lengths))]
    return wrap(tf.cast(tf.stack(sizes, 1), pfor_input.get_attr("out_type")), stacked=True)


def _size(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    size = tf.ones([rows_in(value.dense, 0)], tf.int32)
    for dim in range(len(value.lengths)):
        size *= value.size(dim)
    return wrap(tf.cast(size, pfor_input.get_attr("out_type")), stacked=True)


def _expand(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    axis = axis_of(pfor_input, 1, rank_of(pfor_input, 0) + 1)
    lengths = (*value.lengths[:axis], None, *value.lengths[axis:])
    return wrap_differing(Differing(tf.expand_dims(value.dense, axis + 1), lengths), pfor_input.outputs[0].shape)


def _squeeze(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    rank = rank_of(pfor_input, 0)
    dims = sorted({dim % rank for dim in pfor_input.get_attr("squeeze_dims")})
    if not dims:
        not_for_these("which dimensions are 1 depends on the example; name them, tf.squeeze(x, axis)")
    dense = value.dense
    for dim in dims:
        length = value.lengths[dim]
        if length is not None:
            dense = require(length == 1, resized(dense, dim + 1, 1), "tf.squeeze of a dimension that is not 1")
    lengths = tuple(length for dim, length in enumerate(value.lengths) if dim not in dims)
    dense = tf.squeeze(dense, [dim + 1 for dim in dims])
    return wrap_differing(Differing(dense, lengths), pfor_input.outputs[0].shape)


def _transpose(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    order = known_operand(pfor_input, 1)
    if order is None:
        not_for_these("the order of the dimensions is not a constant")
    dense = tf.transpose(value.dense, [0, *(int(dim) + 1 for dim in order)])
    return wrap_differing(Differing(dense, tuple(value.lengths[int(dim)] for dim in order)))


def _reshape(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    shape = pfor_input.outputs[0].shape
    if shape.rank is None:
        not_for_these("the number of dimensions of the result is not known")
    if value.is_fixed and shape.is_fully_defined():
        return wrap(reshaped_rows(value.dense, shape.as_list()), stacked=True)
    open_dims = [dim for dim, size in enumerate(shape) if size is None]
    # Elements stay a prefix of each row if all that comes before the open dimension is 1.
    place = open_dims[0] if open_dims else 0
    if len(open_dims) > 1 or any(size != 1 for size in shape[:place]):
        return wrap_differing(_laid_out(value, _sizes(pfor_input, shape.rank)), shape)
    made = _leading(value, math.prod(shape[place + 1 :]) if shape.rank else 1)
    lengths: tuple[tf.Tensor | None, ...] = (*(None,) * place, made.lengths[0], *(None,) * (shape.rank - place - 1))
    if not open_dims:
        # The size was given, and must be each row's.
        size = shape[0] if shape.rank else 1
        dense = require(made.size(0) == size, resized(made.dense, 1, size), "a reshape to another number of elements")
        return wrap(reshaped_rows(dense, shape.as_list()), stacked=True)
    dense = reshaped_rows(made.dense, [*shape[:place], -1, *shape[place + 1 :]])
    return wrap_differing(Differing(dense, lengths), shape)


def _leading(value: Differing, inner: int) -> Differing:
    """Return the elements of each row as ``[n, inner]``, n differing."""
    sizes = value.dense.shape[2:]
    if all(length is None for length in value.lengths[1:]) and sizes.is_fully_defined() and value.lengths:
        had = sizes.num_elements()
        length, dense = value.size(0), value.dense
        dense = reshaped_rows(dense, [-1, had])
        if had != inner:
            width = dense.shape[1]
            flat = reshaped_rows(dense, [-1 if width is None else width * had])
            total = rows_in(flat, 1)
            flat = resized(flat, 1, -(-total // inner) * inner if inner else total)
            left = length * had
            length = left // max(inner, 1)
            flat = require(left == length * inner, flat, "a reshape to another number of elements")
            dense = reshaped_rows(flat, [-1, inner])
        rows = tf.shape(dense)[:1]
        return Differing(dense, (tf.broadcast_to(length, rows), None))
    if inner != 1:
        not_for_these("a reshape of what differs in more than its first dimension")
    is_there = tf.broadcast_to(value.mask(), tf.shape(value.dense))
    flat = compacted(reshaped_rows(value.dense, [-1]), reshaped_rows(is_there, [-1]))
    return Differing(flat.dense[:, :, tf.newaxis], (flat.lengths[0], None))


def _sizes(pfor_input: Any, rank: int) -> list[tf.Tensor]:
    """Return the sizes that a reshape asks for, int32 [rows] each; -1 is what is left."""
    own = tf.cast(stacked(pfor_input.inputs[1], pfor_input), tf.int32)
    return [own[:, dim] for dim in range(rank)]


def _laid_out(value: Differing, sizes: list[tf.Tensor]) -> Differing:
    """Reshape each row to sizes of its own."""
    flat = _leading(value, 1)
    total = flat.size(0)
    known = tf.reduce_prod(tf.stack([tf.where(size < 0, 1, size) for size in sizes]), 0)
    sizes = [tf.where(size < 0, total // tf.maximum(known, 1), size) for size in sizes]
    fits = tf.reduce_prod(tf.stack(sizes), 0) == total
    dense = require(fits, flat.dense[:, :, 0], "a reshape to another number of elements")
    place, step = tf.zeros([1], tf.int32), tf.ones([1], tf.int32)
    for dim, size in reversed(list(enumerate(sizes))):
        after = len(sizes) - dim - 1
        mine = tf.range(longest(size)) * step[:, tf.newaxis]
        place = reshaped_rows(mine, [-1, *[1] * after]) + tf.expand_dims(place, 1)
        step = step * size
    place = tf.minimum(place, rows_in(dense, 1) - 1)
    return Differing(tf.gather(dense, place, batch_dims=1), tuple(sizes))


CONVERTERS: dict[str, Converter] = {
    "ExpandDims": _expand,
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": _size,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
}
