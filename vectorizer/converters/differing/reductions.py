"""Reductions of values of differing length: the padding gets what changes nothing, as 0 does in a sum."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, converted_with, not_for_these, wrap, wrap_differing
from vectorizer.converters.constants import known_operand
from vectorizer.converters.differing.operands import operand, rank_of, require, reshaped_rows
from vectorizer.differing import Differing, rows_in

__all__ = ["CONVERTERS", "lowest"]


def lowest(dtype: tf.DType) -> Any:
    """Return what is never above anything: minus infinity, or a type's least number."""
    return -float("inf") if dtype.is_floating else dtype.min


def _highest(dtype: tf.DType) -> Any:
    return float("inf") if dtype.is_floating else dtype.max


_NEUTRAL: dict[str, Any] = {
    "All": lambda _: True,
    "Any": lambda _: False,
    "EuclideanNorm": lambda _: 0,
    "Max": lowest,
    "Min": _highest,
    "Prod": lambda _: 1,
    "Sum": lambda _: 0,
}


def _axes(pfor_input: Any, rank: int) -> list[int]:
    known = known_operand(pfor_input, 1)
    if known is None:
        not_for_these("the axes are not constants")
    return sorted({int(axis) % rank for axis in known.reshape([-1])})


def _remaining(pfor_input: Any, value: Differing, axes: list[int]) -> tuple[tf.Tensor | None, ...]:
    if pfor_input.get_attr("keep_dims"):
        return tuple(None if dim in axes else length for dim, length in enumerate(value.lengths))
    return tuple(length for dim, length in enumerate(value.lengths) if dim not in axes)


def _reduce(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    axes = _axes(pfor_input, rank_of(pfor_input, 0))
    filled = value.filled(_NEUTRAL[pfor_input.op_type](value.dense.dtype))
    (made,) = converted_with(pfor_input, [wrap(filled, stacked=True), pfor_input.inputs[1]])
    return wrap_differing(Differing(made, _remaining(pfor_input, value, axes)), pfor_input.outputs[0].shape)


def _mean(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    rank = rank_of(pfor_input, 0)
    axes = _axes(pfor_input, rank)
    dense = value.blank()
    total = tf.reduce_sum(dense, [axis + 1 for axis in axes], keepdims=pfor_input.get_attr("keep_dims"))
    count = tf.ones([rows_in(dense, 0)], tf.int32)
    for axis in axes:
        count *= value.size(axis)
    count = reshaped_rows(count, [1] * (total.shape.rank - 1))
    if dense.dtype.is_integer:
        made = tf.raw_ops.Div(x=total, y=tf.cast(tf.maximum(count, 1), total.dtype))
    else:
        made = total / tf.cast(count, total.dtype)
    return wrap_differing(Differing(made, _remaining(pfor_input, value, axes)), pfor_input.outputs[0].shape)


def _extreme(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    known = known_operand(pfor_input, 1)
    if known is None:
        not_for_these("the axis is not a constant")
    axis = int(known) % rank_of(pfor_input, 0)
    dtype = value.dense.dtype
    filled = value.filled(lowest(dtype) if pfor_input.op_type == "ArgMax" else _highest(dtype))
    (made,) = converted_with(pfor_input, [wrap(filled, stacked=True), pfor_input.inputs[1]])
    length = value.lengths[axis]
    if length is not None:
        made = require(length > 0, made, f"{pfor_input.op_type} of no elements")
    lengths = tuple(own for dim, own in enumerate(value.lengths) if dim != axis)
    return wrap_differing(Differing(made, lengths), pfor_input.outputs[0].shape)


def _last_dimension(pfor_input: Any) -> Any:
    """Softmax: what is minus infinity takes no part."""
    value = operand(pfor_input, 0)
    filled = value.filled(lowest(value.dense.dtype))
    (made,) = converted_with(pfor_input, [wrap(filled, stacked=True)])
    return wrap_differing(Differing(made, value.lengths), pfor_input.outputs[0].shape)


def _half_square(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    (made,) = converted_with(pfor_input, [wrap(value.blank(), stacked=True)])
    return wrap(made, stacked=True)


def _running(pfor_input: Any) -> Any:
    value = operand(pfor_input, 0)
    filled = value.filled(1 if pfor_input.op_type == "Cumprod" else 0)
    (made,) = converted_with(pfor_input, [wrap(filled, stacked=True), pfor_input.inputs[1]])
    return wrap_differing(Differing(made, value.lengths), pfor_input.outputs[0].shape)


def _joined(pfor_input: Any) -> Any:
    """Join the strings of each row. Shapes: [rows, n] -> [rows], or [rows, 1]."""
    value = operand(pfor_input, 0)
    length = value.lengths[0]
    if rank_of(pfor_input, 0) != 1 or length is None or known_operand(pfor_input, 1) is None:
        not_for_these("strings of differing number are joined along the only dimension")
    rows = rows_in(value.dense, 0)
    if known_operand(pfor_input, 1).size == 0:
        return wrap_differing(value, pfor_input.outputs[0].shape)
    joined = tf.strings.unsorted_segment_join(
        value.flat(), tf.repeat(tf.range(rows), length), rows, separator=pfor_input.get_attr("separator")
    )
    joined = tf.ensure_shape(joined, value.dense.shape[:1])
    return wrap(joined[:, tf.newaxis] if pfor_input.get_attr("keep_dims") else joined, stacked=True)


CONVERTERS: dict[str, Converter] = {
    "ArgMax": _extreme,
    "ArgMin": _extreme,
    "Cumprod": _running,
    "Cumsum": _running,
    "L2Loss": _half_square,
    "LogSoftmax": _last_dimension,
    "Mean": _mean,
    "ReduceJoin": _joined,
    "Softmax": _last_dimension,
    **dict.fromkeys(_NEUTRAL, _reduce),
}
