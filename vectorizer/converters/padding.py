"""Padding by another number in each row, as the derivative of a slice that begins elsewhere in each row: Pad, PadV2.

The size of the result must be the same for all rows: what is put before and after must have a constant sum.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, stacked, stock_registry, wrap
from vectorizer.converters.expressions import constant_difference, constant_entry

__all__ = ["CONVERTERS"]


def _pad(pfor_input: Any) -> Any:
    op = pfor_input.op
    paddings = pfor_input.input(1)
    if not paddings.is_stacked:
        return _pad_alike(pfor_input)
    sizes = op.inputs[0].shape
    if not sizes.is_fully_defined():
        not_for_these(f"the size of {sizes} is not known")
    result = stacked(pfor_input.input(0), pfor_input)
    is_padding = tf.zeros([1] * (sizes.rank + 1), tf.bool)
    for dim, size in enumerate(sizes):
        total = _total(op.inputs[1], dim)
        if total is None or size == 0:
            not_for_these(
                "the size of the result may differ from row to row; what is put before and after must have a constant "
                "sum, as in [[i, 4 - i]]"
            )
        before = paddings.t[:, dim, 0, tf.newaxis]
        place = tf.range(size + total, dtype=before.dtype) - before
        # A negative number fails in the function, and an index out of range here.
        is_allowed = (before >= 0) & (before <= total)
        inside = tf.where(is_allowed, tf.clip_by_value(place, 0, size - 1), size)
        result = tf.gather(result, inside, axis=dim + 1, batch_dims=1)
        beside = (place < 0) | (place >= size)
        is_padding |= tf.reshape(beside, [-1, *[size + total if at == dim else 1 for at in range(sizes.rank)]])
    value = tf.zeros([], result.dtype)
    if op.type == "PadV2":
        given = pfor_input.input(2)
        value = tf.reshape(given.t, [-1, *[1] * sizes.rank]) if given.is_stacked else given.t
    return wrap(tf.where(is_padding, value, result), stacked=True)


def _pad_alike(pfor_input: Any) -> Any:
    """Pad by the same number in each row. pfor pads with zeros, whatever it is told to."""
    op = pfor_input.op
    if op.type == "Pad":
        return stock_registry()["Pad"](pfor_input)
    _, paddings, value = pfor_input.inputs
    image = stacked(pfor_input.input(0), pfor_input)
    ends = tf.concat([tf.zeros([1, 2], paddings.t.dtype), paddings.t], 0)
    if not value.is_stacked:
        return wrap(tf.raw_ops.PadV2(input=image, paddings=ends, constant_values=value.t), stacked=True)
    is_inside = tf.pad(tf.ones_like(image, tf.bool), ends)
    beside = tf.reshape(value.t, [-1, *[1] * op.inputs[0].shape.rank])
    return wrap(tf.where(is_inside, tf.pad(image, ends), beside), stacked=True)


def _total(paddings: tf.Tensor, dim: int) -> int | None:
    """Return how much larger a dimension becomes, if that is the same for every example."""
    ends = _ends(paddings, dim)
    if ends is None:
        return None
    (before, entry), (after, after_entry) = ends
    first, last = constant_entry(before, entry), constant_entry(after, after_entry)
    if first is not None and last is not None:
        return first + last
    for one, other, at in ((after, before, after_entry), (before, after, entry)):
        # c - x after x.
        if one.op.type == "Sub":
            constant = constant_entry(one.op.inputs[0], at)
            rest = constant_difference(other, one.op.inputs[1], at)
            if constant is not None and rest is not None:
                return constant + rest
    return None


def _ends(paddings: tf.Tensor, dim: int) -> tuple[tuple[tf.Tensor, int | None], tuple[tf.Tensor, int | None]] | None:
    """Return what is put before and after a dimension: scalars of the function, or entries of its vectors."""
    op = paddings.op
    if op.type == "Pack" and op.get_attr("axis") == 0:
        pair = op.inputs[dim]
        if pair.op.type == "Pack":
            return (pair.op.inputs[0], None), (pair.op.inputs[1], None)
        known = tf.get_static_value(pair)
        return None if known is None else ((pair, 0), (pair, 1))
    if op.type == "ConcatV2" and len(op.inputs) == 3 and tf.get_static_value(op.inputs[2]) == 1:
        columns = [column.op.inputs[0] for column in op.inputs[:2] if column.op.type == "Reshape"]
        if len(columns) == 2 and all(column.shape.rank == 1 for column in columns):
            return (columns[0], dim), (columns[1], dim)
    return None


CONVERTERS: dict[str, Converter] = {"Pad": _pad, "PadV2": _pad}
