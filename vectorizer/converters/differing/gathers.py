"""Elements picked by indices of differing number, and elements of values of differing length.

The padding of indices is 0, which is in range; an index beyond a row's own length fails, as it does in the function.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, converted_with, differing, not_for_these, wrap, wrap_differing
from vectorizer.converters.constants import known_operand
from vectorizer.converters.differing.operands import axis_of, operand, rank_of, require, wrapped
from vectorizer.converters.differing.reductions import lowest
from vectorizer.differing import Differing, resized, rows_in

__all__ = ["CONVERTERS", "SOURCES"]


def _indices(pfor_input: Any, position: int) -> Any:
    """Return an operand of indices, in range where it is padding."""
    value = differing(pfor_input.inputs[position])
    return pfor_input.inputs[position] if value is None else wrap(value.blank(), stacked=True)


def _judged(indices: Differing, size: tf.Tensor, width: Any) -> tf.Tensor:
    """Return indices, one beyond the row's own size as one that fails. Shapes: size [rows] or []."""
    own = indices.blank()
    limit = tf.cast(size, own.dtype)
    if limit.shape.rank:
        limit = tf.reshape(limit, [-1, *[1] * len(indices.lengths)])
    return tf.where(~indices.mask() | (own < limit), own, tf.cast(width, own.dtype))


def _gather(pfor_input: Any) -> Any:
    table, indices = operand(pfor_input, 0) if differing(pfor_input.inputs[0]) else None, operand(pfor_input, 1)
    rank = rank_of(pfor_input, 0)
    axis = axis_of(pfor_input, 2, rank) if pfor_input.op_type == "GatherV2" else 0
    if pfor_input.op_type == "GatherV2" and pfor_input.get_attr("batch_dims"):
        not_for_these("indices of a batch of the example's own")
    others = pfor_input.inputs[2:]
    if table is None:
        (made,) = converted_with(pfor_input, [pfor_input.inputs[0], _indices(pfor_input, 1), *others])
        before, after = (None,) * axis, (None,) * (rank - axis - 1)
    else:
        own = _judged(indices, table.size(axis), rows_in(table.dense, axis + 1))
        (made,) = converted_with(pfor_input, [wrapped(table), wrap(own, stacked=True), *others])
        before, after = table.lengths[:axis], table.lengths[axis + 1 :]
    return wrap_differing(Differing(made, (*before, *indices.lengths, *after)), pfor_input.outputs[0].shape)


def _gather_nd(pfor_input: Any) -> Any:
    indices, rank = operand(pfor_input, 1), rank_of(pfor_input, 0)
    depth = pfor_input.op.inputs[1].shape[-1]
    if depth is None:
        not_for_these("the depth of the indices is not known")
    table = differing(pfor_input.inputs[0])
    if table is None:
        given, after = pfor_input.inputs[0], (None,) * (rank - depth)
        own = indices.blank()
    else:
        given, after = wrapped(table), table.lengths[depth:]
        columns = [
            _judged(
                Differing(indices.dense[..., dim], indices.lengths[:-1]), table.size(dim), rows_in(table.dense, dim + 1)
            )
            for dim in range(depth)
        ]
        own = tf.stack(columns, -1) if depth else indices.dense
    (made,) = converted_with(pfor_input, [given, wrap(own, stacked=True)])
    return wrap_differing(Differing(made, (*indices.lengths[:-1], *after)), pfor_input.outputs[0].shape)


def _look_up(pfor_input: Any) -> Any:
    """Look up in a variable or table that all rows share; what an entry holds comes after the keys' dimensions."""
    if differing(pfor_input.inputs[0]) or any(differing(value) for value in pfor_input.inputs[2:]):
        not_for_these("the table or its default differs")
    keys = operand(pfor_input, 1)
    (made,) = converted_with(pfor_input, [pfor_input.inputs[0], _indices(pfor_input, 1), *pfor_input.inputs[2:]])
    keys_dims = keys.lengths[:-1] if pfor_input.op_type == "ResourceGatherNd" else keys.lengths
    rank = pfor_input.outputs[0].shape.rank
    if rank is None:
        not_for_these("the number of dimensions of an entry is not known")
    # The op of a table knows nothing of its result's shape.
    made = tf.ensure_shape(made, [*keys.dense.shape[: len(keys_dims) + 1], *[None] * (rank - len(keys_dims))])
    after = (None,) * (rank - len(keys_dims))
    return wrap_differing(Differing(made, (*keys_dims, *after)), pfor_input.outputs[0].shape)


def _one_hot(pfor_input: Any) -> Any:
    if any(differing(value) for value in pfor_input.inputs[1:]):
        not_for_these("depth and values are the same for all elements")
    value = operand(pfor_input, 0)
    (made,) = converted_with(pfor_input, [wrapped(value), *pfor_input.inputs[1:]])
    axis = pfor_input.get_attr("axis") % (len(value.lengths) + 1)
    lengths = (*value.lengths[:axis], None, *value.lengths[axis:])
    return wrap_differing(Differing(made, lengths), pfor_input.outputs[0].shape)


def _top(pfor_input: Any) -> Any:
    """The largest of each row: padding is never larger, and stands behind what is as small."""
    value, k = operand(pfor_input, 0), pfor_input.inputs[1]
    known, dense = known_operand(pfor_input, 1), value.filled(lowest(value.dense.dtype))
    length, width = value.size(len(value.lengths) - 1), rows_in(dense, -1)
    message = "input must have at least k columns"
    if not k.is_stacked:
        wanted = k.t if known is None else int(known)
        if not isinstance(width, int) or not isinstance(wanted, int) or width < wanted:
            dense = _widened(dense, tf.maximum(width, wanted))
        made = tf.math.top_k(dense, wanted, sorted=pfor_input.get_attr("sorted"))
        last = None
    else:
        wanted = tf.cast(k.t, tf.int32)
        made, last = tf.math.top_k(dense, width), wanted
    enough = tf.reshape(length >= wanted, [-1])
    lengths = (*value.lengths[:-1], last)
    results = [require(enough, made.values, message), tf.cast(made.indices, pfor_input.outputs[1].dtype)]
    return [
        wrap_differing(Differing(result, lengths), output.shape)
        for result, output in zip(results, pfor_input.outputs, strict=True)
    ]


def _widened(dense: tf.Tensor, width: Any) -> tf.Tensor:
    axis = dense.shape.rank - 1
    had = rows_in(dense, axis)
    wide = resized(dense, axis, width)
    return tf.where(tf.range(width) < had, wide, tf.constant(lowest(dense.dtype), dense.dtype))


CONVERTERS: dict[str, Converter] = {
    "Gather": _gather,
    "GatherNd": _gather_nd,
    "GatherV2": _gather,
    "LookupTableFindV2": _look_up,
    "OneHot": _one_hot,
    "ResourceGather": _look_up,
    "ResourceGatherNd": _look_up,
}
SOURCES: dict[str, Converter] = {"TopK": _top, "TopKV2": _top}
