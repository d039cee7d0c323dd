"""Elements picked by index: Gather, GatherV2, GatherNd, InvertPermutation, OneHot, Roll, UnravelIndex.

pfor loops over GatherNd where all rows share the table, repeats shared indices for each row, miscounts a negative
``batch_dims``, and fails on OneHot with values of each row. An index out of range fails, as it does in the function:
the row never reaches into its neighbour, because the rows are a dimension of their own wherever an index is judged.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, stacked, stock_registry, wrap
from vectorizer.converters.constants import known_operand
from vectorizer.converters.folding import reshape_to, sizes
from vectorizer.converters.stacking import numbered

__all__ = ["CONVERTERS", "MAX_INDEX_DEPTH"]

#: What the kernels of GatherNd and the scatters take as the last dimension of their indices.
MAX_INDEX_DEPTH = 7


def _gather(pfor_input: Any) -> Any:
    op = pfor_input.op
    table, indices = pfor_input.inputs[:2]
    table_rank, index_rank = op.inputs[0].shape.rank, op.inputs[1].shape.rank
    axis, batch_dims = 0, 0
    if op.type == "GatherV2":
        if pfor_input.input(2).is_stacked:
            not_for_these("the axis differs from row to row")
        known = known_operand(pfor_input, 2)
        if known is None or table_rank is None or index_rank is None:
            return stock_registry()["GatherV2"](pfor_input)
        axis = int(known) % table_rank
        batch_dims = op.get_attr("batch_dims")
        batch_dims += index_rank if batch_dims < 0 else 0
    if table.is_stacked:
        if not indices.is_stacked and batch_dims == 0:
            return wrap(tf.gather(table.t, indices.t, axis=axis + 1), stacked=True)
        own = stacked(indices, pfor_input)
        return wrap(tf.gather(table.t, own, axis=axis + 1, batch_dims=batch_dims + 1), stacked=True)
    if axis == 0:
        return wrap(tf.gather(table.t, indices.t), stacked=True)
    # The rows go behind the batch dimensions, come out where the axis was, and from there to the front.
    order = [*range(1, batch_dims + 1), 0, *range(batch_dims + 1, index_rank + 1)]
    gathered = tf.gather(table.t, tf.transpose(indices.t, order), axis=axis, batch_dims=batch_dims)
    return wrap(_to_front(gathered, axis), stacked=True)


def _to_front(value: tf.Tensor, axis: int) -> tf.Tensor:
    return tf.transpose(value, [axis, *range(axis), *range(axis + 1, value.shape.rank)])


def _gather_nd(pfor_input: Any) -> Any:
    table, indices = pfor_input.inputs
    policy = pfor_input.get_attr("bad_indices_policy")
    if not table.is_stacked:
        gathered = tf.raw_ops.GatherNd(params=table.t, indices=indices.t, bad_indices_policy=policy)
        return wrap(gathered, stacked=True)
    depth = pfor_input.op.inputs[1].shape
    if depth.rank is None or depth[-1] is None or depth[-1] >= MAX_INDEX_DEPTH:
        not_for_these(f"indices of shape {depth} have no known depth below {MAX_INDEX_DEPTH}")
    own = numbered(stacked(indices, pfor_input))
    return wrap(tf.raw_ops.GatherNd(params=table.t, indices=own, bad_indices_policy=policy), stacked=True)


def _unravel_index(pfor_input: Any) -> Any:
    if pfor_input.input(1).is_stacked:
        not_for_these("the dimensions differ from row to row")
    indices = pfor_input.stacked_input(0)
    rank = pfor_input.op.inputs[0].shape.rank
    if rank is None:
        not_for_these("the number of dimensions of the indices is not known")
    flat = tf.raw_ops.UnravelIndex(indices=tf.reshape(indices, [-1]), dims=pfor_input.input(1).t)
    split = tf.reshape(flat, tf.concat([[-1], tf.shape(indices)], axis=0))
    # The kernel puts the coordinates first.
    return wrap(_to_front(split, 1), stacked=True)


def _invert_permutation(pfor_input: Any) -> Any:
    """Invert the permutations of all rows as one: each row has its own range of numbers."""
    own = pfor_input.stacked_input(0)
    rows, size = sizes(own)
    first = reshape_to(tf.range(rows, dtype=own.dtype) * size, [rows, 1])
    # A number out of range must not be taken for one of the next row.
    placed = tf.where((own >= 0) & (own < size), own + first, -1)
    inverse = tf.raw_ops.InvertPermutation(x=tf.reshape(placed, [-1]))
    return wrap(tf.reshape(inverse, tf.shape(own)) - first, stacked=True)


def _one_hot(pfor_input: Any) -> Any:
    indices, depth, on, off = pfor_input.inputs
    if depth.is_stacked:
        not_for_these("the depth, and so the size of the result, differs from row to row")
    if not on.is_stacked and not off.is_stacked:
        return stock_registry()["OneHot"](pfor_input)
    axis, rank = pfor_input.get_attr("axis"), pfor_input.op.inputs[0].shape.rank
    if rank is None:
        not_for_these("the number of dimensions of the indices is not known")
    own = stacked(indices, pfor_input)
    hot = tf.one_hot(own, depth.t, on_value=True, off_value=False, axis=axis + 1 if axis >= 0 else axis)

    def spread(value: Any) -> tf.Tensor:
        return tf.reshape(value.t, [-1] + [1] * (rank + 1)) if value.is_stacked else value.t

    return wrap(tf.where(hot, spread(on), spread(off)), stacked=True)


def _roll(pfor_input: Any) -> Any:
    value, shift, _ = pfor_input.inputs
    axes = known_operand(pfor_input, 2)
    rank = pfor_input.op.inputs[0].shape.rank
    if axes is None or rank is None:
        not_for_these("the axes are not constants")
    # pfor counts an axis from the end as if the rows were not there, and rolls them.
    turned = [int(one) % rank + 1 for one in axes.reshape([-1])]
    if not shift.is_stacked:
        return wrap(tf.roll(value.t, tf.reshape(shift.t, [-1]), turned), stacked=True)
    shifts = tf.reshape(shift.t, [-1, len(turned)])
    result = stacked(value, pfor_input)
    for position, dim in enumerate(turned):
        size = tf.shape(result)[dim]
        places = tf.math.floormod(tf.range(size) - _within(shifts[:, position, tf.newaxis], size), size)
        result = tf.gather(result, places, axis=dim, batch_dims=1)
    return wrap(result, stacked=True)


def _within(shift: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Reduce a shift to less than one turn, so that it fits int32; a dimension of 0 has none."""
    return tf.cast(tf.math.floormod(shift, tf.cast(tf.maximum(size, 1), shift.dtype)), tf.int32)


CONVERTERS: dict[str, Converter] = {
    "Gather": _gather,
    "GatherNd": _gather_nd,
    "GatherV2": _gather,
    "InvertPermutation": _invert_permutation,
    "OneHot": _one_hot,
    "Roll": _roll,
    "UnravelIndex": _unravel_index,
}
