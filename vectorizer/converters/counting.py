"""Counting and ranking: Bincount, DenseBincount, HistogramFixedWidth, InTopK, NthElement, TopK.

The kernels take rows of their own: of histograms, of predictions. What must be the same for all rows is
what makes the size of the result: the number of bins, ``k``.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, wrap
from vectorizer.converters.constants import known_operand
from vectorizer.converters.folding import batch_folding, reshape_to, sizes, unfolded

__all__ = ["CONVERTERS", "bounded"]


def _bincount(pfor_input: Any) -> Any:
    values, size, weights = pfor_input.inputs
    op = pfor_input.op
    n_bins = bounded(op.inputs[1]) if size.is_stacked else size.t
    if n_bins is None:
        not_for_these(
            "the number of bins, and so the size of the result, differs from row to row; give minlength and "
            "maxlength the same constant"
        )
    shape, weights_shape = op.inputs[0].shape, op.inputs[2].shape
    if not shape.is_fully_defined() or not weights_shape.is_fully_defined():
        not_for_these(f"values of shape {shape} and weights of shape {weights_shape} have no known size")
    own = stacked(values, pfor_input)
    rows = sizes(own)[0]
    # One histogram for each row of a matrix; Bincount counts all its values into one.
    keeps_matrix = op.type == "DenseBincount" and shape.rank == 2
    matrix = [rows * shape[0], shape[1]] if keeps_matrix else [rows, shape.num_elements()]
    is_weighted = weights_shape.num_elements() > 0
    given = reshape_to(stacked(weights, pfor_input), matrix) if is_weighted else tf.zeros([0], weights.t.dtype)
    counts = tf.raw_ops.DenseBincount(
        input=reshape_to(own, matrix),
        size=tf.cast(n_bins, values.t.dtype),
        weights=given,
        binary_output=op.type == "DenseBincount" and op.get_attr("binary_output"),
    )
    return wrap(unfolded(counts, rows) if keeps_matrix else counts, stacked=True)


def bounded(size: tf.Tensor) -> int | None:
    """Return a size that depends on the example only in form: at least one constant, and at most the same."""
    if size.op.type in ("Cast", "Identity"):
        return bounded(size.op.inputs[0])
    if size.op.type != "Minimum":
        return None
    for most, rest in (size.op.inputs, reversed(size.op.inputs)):
        limit = tf.get_static_value(most)
        if limit is None or rest.op.type != "Maximum":
            continue
        least = [tf.get_static_value(term) for term in rest.op.inputs]
        if any(known is not None and known >= limit for known in least):
            return int(limit)
    return None


def _histogram(pfor_input: Any) -> Any:
    """Count values in bins of equal width, with the kernel's arithmetic (histogram_op_cpu.cc).

    Shapes: values [rows, *s], their range [rows, 2], either maybe shared -> [rows, bins].
    """
    n_bins = known_operand(pfor_input, 2)
    if n_bins is None:
        not_for_these("the number of bins, and so the size of the result, is not a constant")
    values, ends = (stacked(pfor_input.input(index), pfor_input) for index in (0, 1))
    rows = sizes(values)[0]
    flat = reshape_to(values, [rows, -1])
    low, high = ends[:, :1], ends[:, 1:]
    width = tf.cast(high - low, tf.float64) / int(n_bins)
    place = tf.cast(tf.maximum(flat, low) - low, tf.float64) / width
    bins = tf.cast(tf.minimum(place, tf.constant(float(n_bins - 1), tf.float64)), tf.int32)
    # A range that ends before it begins, or a value that is no number, is refused by what counts.
    is_known = (low < high) & tf.equal(flat, flat)
    weights = tf.zeros([0], pfor_input.get_attr("dtype"))
    counts = tf.raw_ops.DenseBincount(input=tf.where(is_known, bins, -1), size=int(n_bins), weights=weights)
    return wrap(counts, stacked=True)


def _last_dimension(pfor_input: Any) -> Any:
    if pfor_input.num_inputs == 2 and pfor_input.input(1).is_stacked:
        not_for_these(f"{pfor_input.op_type} can't have another number of elements in each row")
    outputs = same_op(pfor_input, [pfor_input.stacked_input(0), *(value.t for value in pfor_input.inputs[1:])])
    return [wrap(output, stacked=True) for output in outputs]


CONVERTERS: dict[str, Converter] = {
    "Bincount": _bincount,
    "DenseBincount": _bincount,
    "HistogramFixedWidth": _histogram,
    "InTopK": batch_folding({0, 1}),
    "InTopKV2": batch_folding({0, 1}),
    "NthElement": _last_dimension,
    "TopK": _last_dimension,
    "TopKV2": _last_dimension,
}
