"""Elements that are kept or dropped by their values: Where, Unique*, ListDiff, DynamicPartition.

No row keeps more elements than it has, so that the padded size is static where theirs is.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, keep_from_xla, not_for_these, wrap_differing
from vectorizer.converters.constants import known_operand
from vectorizer.converters.differing.operands import operand, rank_of, reshaped_rows
from vectorizer.differing import Differing, compacted, from_flat, kept_order, rows_in

__all__ = ["SOURCES"]


def _where(pfor_input: Any) -> Any:
    """Shapes: [rows, *sizes] -> coordinates [rows, n, rank], n of each row its own."""
    value = operand(pfor_input, 0)
    if not value.lengths:
        not_for_these("a scalar has no places")
    is_true = (
        value.dense if value.dense.dtype == tf.bool else tf.not_equal(value.dense, tf.zeros([], value.dense.dtype))
    )
    is_true = tf.broadcast_to(is_true & value.mask(), tf.shape(value.dense))
    is_true = tf.ensure_shape(is_true, value.dense.shape)
    sizes = [rows_in(value.dense, dim + 1) for dim in range(len(value.lengths))]
    order, count = kept_order(reshaped_rows(is_true, [-1]) if len(sizes) > 1 else is_true)
    columns = []
    for size in reversed(sizes[1:]):
        columns.append(order % size)
        order = order // size
    places = tf.cast(tf.stack([order, *reversed(columns)], -1), tf.int64)
    return wrap_differing(Differing(places, (count, None)), pfor_input.outputs[0].shape)


def _unique(pfor_input: Any) -> Any:
    """Find each row's distinct elements, in the order in which they first occur, all rows at once.

    An element's number is its first equal's anywhere in the batch, and a row's elements are distinct by row and
    number: the op itself decides what is equal.
    """
    value = operand(pfor_input, 0)
    if rank_of(pfor_input, 0) != 1:
        not_for_these("distinct slices along an axis; make one number of each slice")
    keep_from_xla()
    rows, width = rows_in(value.dense, 0), rows_in(value.dense, 1)
    lengths = tf.broadcast_to(value.size(0), [rows])
    is_there = tf.sequence_mask(lengths, width)
    row = tf.boolean_mask(tf.broadcast_to(tf.range(rows, dtype=tf.int64)[:, tf.newaxis], tf.shape(is_there)), is_there)
    elements = tf.boolean_mask(value.dense, is_there)
    numbers = tf.unique(elements, tf.int64)
    n_numbers = tf.size(numbers.y, tf.int64)
    keys, number, counts = tf.unique_with_counts(row * n_numbers + numbers.idx)
    key_row = keys // tf.maximum(n_numbers, 1)
    n_unique = tf.math.unsorted_segment_sum(tf.ones_like(key_row, tf.int32), key_row, rows)
    firsts = tf.cumsum(n_unique, exclusive=True)
    static = width if isinstance(width, int) else None

    def each(flat: tf.Tensor, own: tf.Tensor, output: tf.Tensor) -> Any:
        return wrap_differing(from_flat(flat, own, size=static and max(static, 1)), output.shape)

    outputs = pfor_input.outputs
    dtype = outputs[1].dtype
    index = tf.cast(number - tf.gather(firsts, row), dtype)
    results = [
        each(tf.gather(numbers.y, keys % tf.maximum(n_numbers, 1)), n_unique, outputs[0]),
        each(index, lengths, outputs[1]),
    ]
    return [*results, *(each(tf.cast(counts, dtype), n_unique, output) for output in outputs[2:])]


def _unique_along(pfor_input: Any) -> Any:
    axis = known_operand(pfor_input, 1)
    if axis is None or axis.size > 1 or (axis.size == 1 and int(axis.reshape([-1])[0]) not in (0, -1)):
        not_for_these("the axis is not a constant")
    return _unique(pfor_input)


def _difference(pfor_input: Any) -> Any:
    """Shapes: x [rows, n], y [rows, m] -> what of x is not in y, and its places."""
    values, others = operand(pfor_input, 0), operand(pfor_input, 1)
    is_equal = tf.equal(values.dense[:, :, tf.newaxis], others.dense[:, tf.newaxis])
    is_in = tf.reduce_any(is_equal & others.mask()[:, tf.newaxis], -1)
    order, count = kept_order(~is_in & values.mask())
    kept = tf.gather(values.dense, order, batch_dims=1)
    return [wrap_differing(Differing(made, (count,))) for made in (kept, tf.cast(order, pfor_input.outputs[1].dtype))]


def _partition(pfor_input: Any) -> Any:
    data, parts = operand(pfor_input, 0), operand(pfor_input, 1)
    if len(parts.lengths) != 1:
        not_for_these("partitions of more than one dimension; reshape data and partitions to one")
    is_there = tf.broadcast_to(parts.mask(), tf.shape(parts.dense))
    made = [
        compacted(data.dense, is_there & tf.equal(parts.dense, number))
        for number in range(pfor_input.get_attr("num_partitions"))
    ]
    return [
        wrap_differing(Differing(part.dense, (part.lengths[0], *data.lengths[1:])), output.shape)
        for part, output in zip(made, pfor_input.outputs, strict=True)
    ]


def _set_operation(_pfor_input: Any) -> Any:
    not_for_these("the sets of each row have sizes of their own")


SOURCES: dict[str, Converter] = {
    "DenseToDenseSetOperation": _set_operation,
    "DynamicPartition": _partition,
    "ListDiff": _difference,
    "Unique": _unique,
    "UniqueV2": _unique_along,
    "UniqueWithCounts": _unique,
    "UniqueWithCountsV2": _unique_along,
    "Where": _where,
}
