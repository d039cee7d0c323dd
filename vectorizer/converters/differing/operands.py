"""Operands of ops on values of differing length: how they are read, and what is refused row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import differing, not_for_these, stacked, wrap
from vectorizer.converters.constants import known_operand
from vectorizer.converters.masks import current_mask
from vectorizer.differing import Differing

__all__ = ["axis_of", "operand", "rank_of", "require", "reshaped_rows", "wrapped"]


def operand(pfor_input: Any, position: int) -> Differing:
    """Return an operand with the sizes of its rows; one that has none that differ is repeated if all rows share it."""
    given = pfor_input.inputs[position]
    value = differing(given)
    if value is not None:
        return value
    return Differing(stacked(given, pfor_input), (None,) * rank_of(pfor_input, position))


def wrapped(value: Differing) -> Any:
    """Return a padded value as an operand like any other, for a converter that knows no lengths."""
    return wrap(value.dense, stacked=True)


def rank_of(pfor_input: Any, position: int) -> int:
    """Return an operand's number of dimensions in the function. Errors: NotForThese if it is not known."""
    rank = pfor_input.op.inputs[position].shape.rank
    if rank is None:
        not_for_these("the number of dimensions of an operand is not known")
    return int(rank)


def axis_of(pfor_input: Any, position: int, rank: int) -> int:
    """Return an operand that names a dimension. Errors: NotForThese if it is no constant."""
    known = known_operand(pfor_input, position)
    if known is None:
        not_for_these("the axis is not a constant")
    return int(known) % max(rank, 1)


def reshaped_rows(value: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
    """Reshape what each row has; -1 for one size that is not known. Shapes: [rows, ...] -> [rows, *shape]."""
    rows = value.shape[0]
    return tf.reshape(value, [tf.shape(value)[0] if rows is None else rows, *shape])


def require(condition: tf.Tensor, value: tf.Tensor, message: str) -> tf.Tensor:
    """Return ``value``, and let the graph fail where the function would: if ``condition`` is false for a row.

    Rows that the piece of the graph is not for can't fail. Shapes: condition [rows, *s].
    """
    mask = current_mask()
    if mask is not None:
        condition |= tf.reshape(~mask, [-1, *[1] * (condition.shape.rank - 1)])
    check = tf.debugging.Assert(tf.reduce_all(condition), [message])
    with tf.control_dependencies([check]):
        return tf.identity(value)
