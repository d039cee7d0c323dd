"""Values of differing length put together: ConcatV2, Pack, products of matrices, and scatters into a fixed size."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, converted_with, differing, not_for_these, stacked, wrap, wrap_differing
from vectorizer.converters.constants import known_operand
from vectorizer.converters.differing.elementwise import aligned
from vectorizer.converters.differing.operands import axis_of, operand, rank_of, require
from vectorizer.differing import Differing, resized, rows_in

__all__ = ["CONVERTERS"]


def _concat(pfor_input: Any) -> Any:
    """Put rows together along one dimension: each operand's elements begin where the row's last one ended."""
    n = len(pfor_input.inputs) - 1
    rank = max(rank_of(pfor_input, position) for position in range(n))
    dim = axis_of(pfor_input, n, rank)
    values = [operand(pfor_input, position) for position in range(n)]
    lengths: list[tf.Tensor | None] = list(values[0].lengths)
    for other in range(rank):
        if other != dim:
            lengths[other], values = _equal(values, other)
    axis = dim + 1
    whole = tf.concat([value.dense for value in values], axis)
    if all(value.lengths[dim] is None for value in values):
        return wrap_differing(Differing(whole, tuple(lengths)), pfor_input.outputs[0].shape)
    rows, width = tf.shape(whole)[:1], rows_in(whole, axis)
    # Where each operand begins in the row, and where it stands in the padded whole.
    place = tf.zeros([1, width], tf.int32)
    begin, stands = tf.zeros(rows, tf.int32), 0
    for value in values:
        size = tf.broadcast_to(value.size(dim), rows)
        inside = tf.range(width) - begin[:, tf.newaxis]
        place = tf.where((inside >= 0) & (inside < size[:, tf.newaxis]), stands + inside, place)
        begin += size
        stands += rows_in(value.dense, axis)
    lengths[dim] = begin
    made = tf.gather(whole, place, axis=axis, batch_dims=1)
    return wrap_differing(Differing(made, tuple(lengths)), pfor_input.outputs[0].shape)


def _equal(values: list[Differing], dim: int) -> tuple[tf.Tensor | None, list[Differing]]:
    """Give operands one padded size in a dimension in which they must be equally long."""
    length = next((value.lengths[dim] for value in values if value.lengths[dim] is not None), None)
    if length is None:
        return None, values
    sizes = [rows_in(value.dense, dim + 1) for value in values]
    width = max(sizes) if all(isinstance(size, int) for size in sizes) else tf.reduce_max(tf.stack(sizes))
    made = []
    for value in values:
        dense = resized(value.dense, dim + 1, width)
        if value.lengths[dim] is not length:
            dense = require(length == value.size(dim), dense, "operands of different lengths are put together")
        made.append(Differing(dense, value.lengths))
    return length, made


def _pack(pfor_input: Any) -> Any:
    operands, lengths = aligned(pfor_input)
    axis = pfor_input.get_attr("axis") % (len(lengths) + 1)
    made = tf.stack([stacked(value, pfor_input) for value in operands], axis + 1)
    return wrap_differing(Differing(made, (*lengths[:axis], None, *lengths[axis:])), pfor_input.outputs[0].shape)


def _matmul(pfor_input: Any) -> Any:
    """Multiply matrices: the padding of what is summed over is 0 on both sides."""
    a, b = operand(pfor_input, 0), operand(pfor_input, 1)
    turns = [pfor_input.get_attr(name) for name in ("transpose_a", "transpose_b")]
    (rows_a, inner_a), (inner_b, columns) = (
        reversed(value.lengths) if turn else value.lengths for value, turn in zip((a, b), turns, strict=True)
    )
    if inner_a is None and inner_b is None:
        given = [_plain(pfor_input, 0), _plain(pfor_input, 1)]
    else:
        at_a, at_b = (1 if turns[0] else 2), (2 if turns[1] else 1)
        sizes = [rows_in(a.dense, at_a), rows_in(b.dense, at_b)]
        width = max(sizes) if all(isinstance(size, int) for size in sizes) else tf.reduce_max(tf.stack(sizes))
        fits = tf.reshape(a.size(at_a - 1) == b.size(at_b - 1), [-1])
        left = require(fits, resized(a.blank(), at_a, width), "a product of matrices of different inner sizes")
        given = [wrap(left, stacked=True), wrap(resized(b.blank(), at_b, width), stacked=True)]
    (made,) = converted_with(pfor_input, given)
    return wrap_differing(Differing(made, (rows_a, columns)), pfor_input.outputs[0].shape)


def _plain(pfor_input: Any, position: int) -> Any:
    value = differing(pfor_input.inputs[position])
    return pfor_input.inputs[position] if value is None else wrap(value.dense, stacked=True)


def _add_bias(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    (made,) = converted_with(pfor_input, [wrap(value.dense, stacked=True), pfor_input.inputs[1]])
    return wrap_differing(Differing(made, value.lengths), pfor_input.outputs[0].shape)


def _segments(pfor_input: Any) -> Any:
    """Reduce by ids, of which those of the padding are dropped."""
    data, ids = operand(pfor_input, 0), operand(pfor_input, 1)
    if len(ids.lengths) != 1 or any(length is not None for length in data.lengths[1:]):
        not_for_these("data of more than one differing dimension is reduced by segments")
    length, values = _equal([Differing(value.dense, value.lengths[:1]) for value in (data, ids)], 0)
    own = tf.where(Differing(values[1].dense, (length,)).mask(), values[1].dense, -1)
    given = [wrap(values[0].dense, stacked=True), wrap(own, stacked=True), pfor_input.inputs[2]]
    (made,) = converted_with(pfor_input, given)
    return wrap(made, stacked=True)


def _sparse_to_dense(pfor_input: Any) -> Any:
    """Put values at their places in a tensor of one size; those of the padding go to a place that is cut off."""
    places, values = operand(pfor_input, 0), operand(pfor_input, 2)
    shape, default = known_operand(pfor_input, 1), pfor_input.inputs[3]
    if shape is None or default.is_stacked:
        not_for_these("the size of the result, or its default, depends on the example")
    rank = len(shape)
    indices = places.dense if len(places.lengths) == 2 else places.dense[..., tf.newaxis]
    indices, is_there = tf.cast(indices, tf.int64), places.mask()
    is_there = is_there[..., 0] if len(places.lengths) == 2 else is_there
    limit = tf.constant(shape, tf.int64)
    in_shape = tf.reduce_all((indices >= 0) & (indices < limit), -1)
    indices = require(in_shape | ~is_there, indices, "an index of a sparse tensor is out of range")
    flat = tf.reduce_sum(indices * tf.math.cumprod(limit, exclusive=True, reverse=True), -1)
    total = tf.reduce_prod(limit)
    flat = tf.where(is_there, flat, total)
    dense = values.dense if values.lengths else values.dense[:, tf.newaxis]
    dense = tf.broadcast_to(dense, tf.shape(flat)) if dense.shape[1] == 1 else resized(dense, 1, rows_in(flat, 1))
    rows = rows_in(flat, 0)
    row = tf.broadcast_to(tf.range(rows, dtype=tf.int64)[:, tf.newaxis], tf.shape(flat))
    blank = tf.fill(tf.stack([tf.cast(rows, tf.int64), total + 1]), default.t)
    made = tf.tensor_scatter_nd_update(blank, tf.stack([row, flat], -1), dense)[:, :-1]
    return wrap(tf.reshape(made, [rows, *(int(size) for size in shape)][: rank + 1]), stacked=True)


_UNSORTED = ("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum")

CONVERTERS: dict[str, Converter] = {
    "BiasAdd": _add_bias,
    "ConcatV2": _concat,
    "MatMul": _matmul,
    "Pack": _pack,
    "SparseToDense": _sparse_to_dense,
    **dict.fromkeys(_UNSORTED, _segments),
}
