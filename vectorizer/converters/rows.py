"""Choosing between the values of rows."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["borrowed", "rows_at", "rows_put", "rows_where", "slots_of", "where_at"]


def rows_where(mask: tf.Tensor, yes: tf.Tensor, no: tf.Tensor) -> tf.Tensor:
    """Return each row of ``yes`` where its ``mask`` is true, else of ``no``.

    Shapes: mask [rows]; yes, no and the result [rows, *s].
    """
    if yes.shape.rank == 1:
        return tf.where(mask, yes, no)
    # The first Select chooses whole rows by a vector; tf.where would broadcast the mask over every element.
    return tf.raw_ops.Select(condition=mask, x=yes, y=no)


def borrowed(mask: tf.Tensor) -> tf.Tensor:
    """Return for each row the row whose value it may compute on: itself where ``mask`` is true, else one that is.

    Shapes: mask [rows] -> int32 [rows]. If no row is true, all borrow from row 0.
    """
    rows = tf.range(tf.shape(mask)[0])
    return tf.where(mask, rows, tf.argmax(tf.cast(mask, tf.int32), output_type=tf.int32))


def where_at(mask: tf.Tensor, yes: tf.Tensor, no: tf.Tensor, *, axis: int) -> tf.Tensor:
    """Return each row of ``yes`` where its ``mask`` is true, else of ``no``; the rows are dimension ``axis``.

    Shapes: mask [rows]; yes, no and the result [*before, rows, *s], as many before as ``axis``.
    """
    if axis == 0:
        return rows_where(mask, yes, no)
    return tf.where(tf.reshape(mask, [*[1] * axis, -1, *[1] * (yes.shape.rank - axis - 1)]), yes, no)


def rows_at(value: tf.Tensor, places: tf.Tensor, axis: int | None) -> tf.Tensor:
    """Return the rows at ``places``, counted along ``axis``; the value itself where all rows share it (None)."""
    return value if axis is None else tf.gather(value, places, axis=axis)


def slots_of(places: tf.Tensor, rows: int) -> tf.Tensor:
    """Return at which of ``places`` each of ``rows`` rows is; -1 for those that are at none. Shapes: [n] -> [rows]."""
    is_at = tf.equal(tf.range(rows)[:, tf.newaxis], places)
    return tf.where(tf.reduce_any(is_at, 1), tf.argmax(is_at, 1, output_type=tf.int32), -1)


def rows_put(whole: tf.Tensor, slots: tf.Tensor, rows: tf.Tensor, axis: int | None) -> tf.Tensor:
    """Return the whole batch with ``rows`` in their slots, counted along ``axis``, or shared by all (None).

    It gathers and chooses: XLA scatters on a CPU in a loop over the rows.
    """
    if axis is None:
        return rows
    return where_at(slots >= 0, tf.gather(rows, tf.maximum(slots, 0), axis=axis), whole, axis=axis)
