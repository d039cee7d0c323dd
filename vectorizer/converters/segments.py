"""Reductions over groups: Segment*, UnsortedSegment*, SparseSegment*, DynamicStitch.

Each row gets segments of its own. pfor does so for some of these, but lets an index out of range reach into the next
row's segments or data: a wrong answer there instead of an error here. Such an index is made to fail.
The number of segments is the size of the result, so that it must be the same for all rows.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, wrap
from vectorizer.converters.folding import folded, reshape_to, sizes, unfolded
from vectorizer.converters.stacking import repeated

__all__ = ["CONVERTERS"]


def _segment(pfor_input: Any) -> Any:
    """Reduce sorted segments that all rows share: the rows are a dimension behind the one that is reduced."""
    data, ids = pfor_input.inputs
    if ids.is_stacked:
        not_for_these("the number of segments may differ from row to row; use tf.math.unsorted_segment_*")
    rank = pfor_input.op.inputs[0].shape.rank
    if rank is None:
        not_for_these("the number of dimensions is not known")
    swapped = [1, 0, *range(2, rank + 1)]
    (reduced,) = same_op(pfor_input, [tf.transpose(data.t, swapped), ids.t])
    return wrap(tf.transpose(reduced, swapped), stacked=True)


def _offset(ids: tf.Tensor, count: tf.Tensor, rows: Any, *, negative: tf.Tensor | None) -> tf.Tensor:
    """Give each row its own range of ids; one out of range becomes one that no row has.

    ``negative`` replaces ids below 0; None leaves them as they are.
    Shapes: [rows, *s] -> [rows, *s].
    """
    first = reshape_to(tf.range(tf.cast(rows, ids.dtype), dtype=ids.dtype) * count, [rows, *[1] * (ids.shape.rank - 1)])
    beyond = count * tf.cast(rows, ids.dtype)
    return tf.where(ids < 0, ids if negative is None else negative, tf.where(ids < count, ids + first, beyond))


def _unsorted_segment(pfor_input: Any) -> Any:
    data, ids, count = pfor_input.inputs
    if count.is_stacked:
        not_for_these("the number of segments differs from row to row")
    if pfor_input.op.inputs[1].shape.rank is None:
        not_for_these("the number of dimensions of the segment ids is not known")
    own_ids = tf.cast(stacked(ids, pfor_input), tf.int64)
    rows, each = sizes(own_ids)[0], tf.cast(count.t, tf.int64)
    # Negative ids are dropped by the reductions of numbers; the one of strings refuses them.
    negative = each * tf.cast(rows, tf.int64) if pfor_input.op_type == "UnsortedSegmentJoin" else None
    placed = _offset(own_ids, each, rows, negative=negative)
    inputs = [stacked(data, pfor_input), placed, each * tf.cast(rows, tf.int64)]
    reduced = _UNSORTED[pfor_input.op_type](pfor_input, *inputs)
    shape = tf.concat([tf.stack([tf.cast(rows, tf.int64), each]), tf.shape(reduced, tf.int64)[1:]], axis=0)
    return wrap(tf.reshape(reduced, shape), stacked=True)


def _joined(pfor_input: Any, data: tf.Tensor, ids: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.UnsortedSegmentJoin(
        inputs=data, segment_ids=ids, num_segments=count, separator=pfor_input.get_attr("separator")
    )


def _reduced_by(op: Any) -> Any:
    return lambda _, data, ids, count: op(data=data, segment_ids=ids, num_segments=count)


_UNSORTED: dict[str, Any] = {
    "UnsortedSegmentJoin": _joined,
    "UnsortedSegmentMax": _reduced_by(tf.raw_ops.UnsortedSegmentMax),
    "UnsortedSegmentMin": _reduced_by(tf.raw_ops.UnsortedSegmentMin),
    "UnsortedSegmentProd": _reduced_by(tf.raw_ops.UnsortedSegmentProd),
    "UnsortedSegmentSum": _reduced_by(tf.raw_ops.UnsortedSegmentSum),
}


def _sparse_segment(pfor_input: Any) -> Any:
    """Reduce chosen rows of a table; each row of the batch has its own part of the table and its own segments."""
    data, indices, ids = pfor_input.inputs[:3]
    if pfor_input.num_inputs == 3 and ids.is_stacked:
        not_for_these("the number of segments may differ from row to row; use ..._with_num_segments")
    if pfor_input.num_inputs == 4 and pfor_input.input(3).is_stacked:
        not_for_these("the number of segments differs from row to row")
    own_ids = tf.cast(stacked(ids, pfor_input), tf.int64)
    rows = sizes(own_ids)[0]
    if pfor_input.num_inputs == 4:
        count = tf.cast(pfor_input.input(3).t, tf.int64)
    else:
        count = tf.reduce_max(tf.concat([tf.cast(ids.t, tf.int64), [-1]], axis=0)) + 1
    own_indices = tf.cast(stacked(indices, pfor_input), tf.int64)
    table = data.t
    refused = tf.constant(-1, tf.int64)
    if data.is_stacked:
        own_indices = _offset(own_indices, tf.shape(table, tf.int64)[1], rows, negative=refused)
        table = folded(table)
    inputs = [
        table,
        tf.reshape(own_indices, [-1]),
        tf.reshape(_offset(own_ids, count, rows, negative=refused), [-1]),
        count * tf.cast(rows, tf.int64),
    ]
    reduced = _SPARSE[pfor_input.op_type.removesuffix("WithNumSegments")](*inputs)
    return wrap(unfolded(reduced, rows), stacked=True)


def _sparse_by(op: Any) -> Any:
    return lambda data, indices, ids, count: op(data=data, indices=indices, segment_ids=ids, num_segments=count)


_SPARSE: dict[str, Any] = {
    "SparseSegmentMean": _sparse_by(tf.raw_ops.SparseSegmentMeanWithNumSegments),
    "SparseSegmentSqrtN": _sparse_by(tf.raw_ops.SparseSegmentSqrtNWithNumSegments),
    "SparseSegmentSum": _sparse_by(tf.raw_ops.SparseSegmentSumWithNumSegments),
}


def _stitch(pfor_input: Any) -> Any:
    """Put pieces together by indices that all rows share; the rows are the last dimension meanwhile."""
    n_pieces = pfor_input.num_inputs // 2
    indices, pieces = pfor_input.inputs[:n_pieces], pfor_input.inputs[n_pieces:]
    if any(index.is_stacked for index in indices):
        not_for_these("the size of the result may differ from row to row")
    ranks = [piece.shape.rank for piece in pfor_input.op.inputs[n_pieces:]]
    if None in ranks or pfor_input.outputs[0].shape.rank is None:
        not_for_these("the number of dimensions is not known")
    rows = next(sizes(piece.t)[0] for piece in pieces if piece.is_stacked)
    turned = [
        tf.transpose(piece.t, [*range(1, rank + 1), 0]) if piece.is_stacked else repeated(piece.t, rows, axis=rank)
        for piece, rank in zip(pieces, ranks, strict=True)
    ]
    (stitched,) = same_op(pfor_input, [*(index.t for index in indices), *turned])
    rank = pfor_input.outputs[0].shape.rank
    return wrap(tf.transpose(stitched, [rank, *range(rank)]), stacked=True)


CONVERTERS: dict[str, Converter] = {
    "DynamicStitch": _stitch,
    "ParallelDynamicStitch": _stitch,
    "SegmentMax": _segment,
    "SegmentMean": _segment,
    "SegmentMin": _segment,
    "SegmentProd": _segment,
    "SegmentSum": _segment,
    "SparseSegmentMean": _sparse_segment,
    "SparseSegmentMeanWithNumSegments": _sparse_segment,
    "SparseSegmentSqrtN": _sparse_segment,
    "SparseSegmentSqrtNWithNumSegments": _sparse_segment,
    "SparseSegmentSum": _sparse_segment,
    "SparseSegmentSumWithNumSegments": _sparse_segment,
    **dict.fromkeys(_UNSORTED, _unsorted_segment),
}
