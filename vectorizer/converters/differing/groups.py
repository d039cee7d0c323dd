"""Groups within a row: histograms of values of differing number, and tf.RaggedTensor made dense."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, wrap_differing
from vectorizer.converters.constants import known_operand
from vectorizer.converters.counting import bounded
from vectorizer.converters.differing.operands import operand, rank_of
from vectorizer.differing import Differing, in_range, longest, resized, rows_in

__all__ = ["SOURCES"]


def _bincount(pfor_input: Any) -> Any:
    """Count the values of each row into its own number of bins. Shapes: [rows, n] -> [rows, bins]."""
    values, size = operand(pfor_input, 0), pfor_input.inputs[1]
    if rank_of(pfor_input, 0) != 1:
        not_for_these("values of more than one dimension are counted")
    known = known_operand(pfor_input, 1)
    if known is None:
        known = bounded(pfor_input.op.inputs[1])
    n_bins: Any = int(known) if known is not None else tf.cast(size.t, tf.int32)
    width = longest(n_bins) if size.is_stacked and known is None else n_bins
    # The kernel leaves out what is not below the number of bins.
    beyond = tf.cast(width, values.dense.dtype)
    counted = tf.where(values.mask(), values.dense, beyond)
    weights = operand(pfor_input, 2)
    is_weighted = pfor_input.op.inputs[2].shape.num_elements() != 0
    given = resized(weights.dense, 1, rows_in(counted, 1)) if is_weighted else tf.zeros([0], weights.dense.dtype)
    made = tf.raw_ops.DenseBincount(
        input=counted,
        size=beyond,
        weights=given,
        binary_output=pfor_input.op_type == "DenseBincount" and pfor_input.get_attr("binary_output"),
    )
    length = n_bins if size.is_stacked and known is None else None
    return wrap_differing(Differing(made, (length,)), pfor_input.outputs[0].shape)


def _ragged_to_dense(pfor_input: Any) -> Any:
    """Pad a ragged tensor of one example: its widest row gives the size.

    Shapes: values [rows, n, *s] in k groups -> [rows, k, width, *s].
    """
    wanted, default = known_operand(pfor_input, 0), pfor_input.inputs[2]
    if wanted is None or default.is_stacked:
        not_for_these("the shape, or what it is padded with, depends on the example")
    if (wanted.ndim == 0 and wanted != -1) or any(size >= 0 for size in wanted.reshape([-1])[2:]):
        not_for_these("a shape beyond the ragged dimension is given")
    sizes = [-1, -1] if wanted.ndim == 0 else [int(size) for size in wanted[:2]]
    values, groups = operand(pfor_input, 1), _groups(pfor_input)
    groups = Differing(tf.where(groups.mask(), groups.dense, 0), groups.lengths)
    begin, lengths = tf.cumsum(groups.dense, 1, exclusive=True), groups.dense
    widest = tf.reduce_max(lengths, 1)
    width = longest(widest) if sizes[1] < 0 else sizes[1]
    inside = in_range(width, tf.reshape(lengths, [-1]))
    inside = tf.reshape(inside, tf.concat([tf.shape(lengths), [width]], 0))
    places = tf.where(inside, begin[..., tf.newaxis] + tf.range(width), 0)
    taken = tf.gather(values.dense, places, batch_dims=1)
    inside = tf.reshape(inside, tf.concat([tf.shape(inside), [1] * (taken.shape.rank - 3)], 0))
    dense = tf.where(inside, taken, tf.cast(default.t, taken.dtype))
    first = groups.lengths[0]
    if sizes[0] >= 0:
        # More groups than wanted are cut off, fewer are filled up.
        is_there = tf.range(sizes[0]) < tf.reshape(groups.size(0), [-1, 1])
        dense = resized(dense, 1, sizes[0])
        there = tf.reshape(is_there, tf.concat([tf.shape(is_there), [1] * (dense.shape.rank - 2)], 0))
        dense, first = tf.where(there, dense, tf.cast(default.t, dense.dtype)), None
    made = Differing(dense, (first, widest if sizes[1] < 0 else None, *values.lengths[1:]))
    return wrap_differing(made, pfor_input.outputs[0].shape)


def _groups(pfor_input: Any) -> Differing:
    """Return how many values each group of a ragged tensor has, int32 [rows, k]."""
    kinds = pfor_input.get_attr("row_partition_types")
    if kinds == [b"ROW_SPLITS"]:
        ends = operand(pfor_input, 3)
        n_groups = None if ends.lengths[0] is None else ends.lengths[0] - 1
        return Differing(tf.cast(ends.dense[:, 1:] - ends.dense[:, :-1], tf.int32), (n_groups,))
    if kinds != [b"FIRST_DIM_SIZE", b"VALUE_ROWIDS"]:
        not_for_these("a ragged tensor of more than one ragged dimension")
    n_groups, group = tf.cast(operand(pfor_input, 3).dense, tf.int32), operand(pfor_input, 4)
    width = longest(n_groups)
    counted = tf.where(group.mask(), tf.cast(group.dense, tf.int32), width)
    return Differing(tf.raw_ops.DenseBincount(input=counted, size=width, weights=tf.zeros([0], tf.int32)), (n_groups,))


SOURCES: dict[str, Converter] = {
    "Bincount": _bincount,
    "DenseBincount": _bincount,
    "RaggedTensorToTensor": _ragged_to_dense,
}
