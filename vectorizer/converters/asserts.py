"""Asserts that judge every row, with the words and the values of the row that fails.

TensorFlow runs an assert of a batch once: it says nothing of which row failed, and shows the values of all of them.
Here one assert judges all rows that the piece of the graph is for, and shows those of the first that fails, so that
what it says is what it says of that example alone. The conversion itself looks after
asserts that no output depends on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, wrap
from vectorizer.converters.masks import current_mask

__all__ = ["CONVERTERS", "assert_rows"]

#: As ``tf.debugging.Assert``.
_SUMMARIZE = 3


def assert_rows(holds: tf.Tensor, shown: Sequence[Any], *, summarize: int = _SUMMARIZE) -> tf.Operation:
    """Raise unless a condition holds for every row that is converted for.

    ``shown`` are strings and tensors; a tensor is of all rows. Shapes: holds [rows] or [1]; tensors [rows, *s].
    """
    mask = current_mask()
    fails = tf.logical_not(holds) if mask is None else tf.logical_and(tf.logical_not(holds), mask)
    first = tf.argmax(tf.cast(fails, tf.int32))
    values = [tf.constant(value) if isinstance(value, str) else _of_row(value, first) for value in shown]
    return tf.raw_ops.Assert(condition=tf.logical_not(tf.reduce_any(fails)), data=values, summarize=summarize)


def _of_row(value: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    return tf.gather(value, tf.minimum(row, tf.shape(value, out_type=tf.int64)[0] - 1))


def _assert(pfor_input: Any) -> Any:
    condition, *values = pfor_input.inputs
    holds = condition.t if condition.is_stacked else tf.expand_dims(condition.t, 0)
    shown = [value.t if value.is_stacked else tf.expand_dims(value.t, 0) for value in values]
    return assert_rows(holds, shown, summarize=pfor_input.get_attr("summarize"))


def _check_numerics(pfor_input: Any) -> Any:
    """Check the values of the rows that are converted for."""
    value, is_stacked, _ = pfor_input.input(0)
    mask = current_mask()
    judged = value
    if mask is not None:
        counts = tf.reshape(mask, [-1, *[1] * (value.shape.rank - 1)]) if is_stacked else tf.reduce_any(mask)
        judged = tf.where(counts, value, tf.zeros_like(value))
    kernel = getattr(tf.raw_ops, pfor_input.op_type)
    checked = kernel(tensor=judged, message=pfor_input.get_attr("message"))
    if mask is None:
        return wrap(checked, stacked=is_stacked)
    with tf.control_dependencies([checked]):
        return wrap(tf.identity(value), stacked=is_stacked)


CONVERTERS: dict[str, Converter] = {
    "Assert": _assert,
    "CheckNumerics": _check_numerics,
    "CheckNumericsV2": _check_numerics,
}
