"""An op that runs once for each row, by permission, where its operands or results differ in length.

Each step gets the row's true value, without padding. What the steps give is kept as it is, flat, with its shape, and
put together afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from vectorizer.differing import Differing, in_range, longest

__all__ = ["loop_rows"]


def loop_rows(
    run: Callable[..., Sequence[tf.Tensor]],
    inputs: Sequence[tuple[tf.Tensor | Differing, bool]],
    outputs: Sequence[tuple[tf.TensorShape, tf.DType]],
    *,
    rows: int,
) -> list[tf.Tensor | Differing]:
    """Run an op for each row. ``inputs`` are pairs: an operand, and whether it has rows.

    ``outputs`` say what is known of an example's results: shape and dtype.
    Shapes: results of a known shape are stacked, [rows, *shape]; others are Differing.
    Errors: NotImplementedError if a result's number of dimensions is not known.
    """
    if any(shape.rank is None for shape, _ in outputs):
        raise NotImplementedError("the number of dimensions of its result is not known")

    def step(row: tf.Tensor, values: Any, shapes: Any) -> tuple[Any, ...]:
        results = run(*(_of_row(value, row) if is_stacked else _shared(value) for value, is_stacked in inputs))
        values = [array.write(row, tf.reshape(result, [-1])) for array, result in zip(values, results, strict=True)]
        shapes = [array.write(row, tf.shape(result)) for array, result in zip(shapes, results, strict=True)]
        return row + 1, values, shapes

    _, values, shapes = tf.while_loop(
        lambda row, *_: row < rows,
        step,
        (
            tf.constant(0),
            [tf.TensorArray(dtype, rows, infer_shape=False, element_shape=[None]) for _, dtype in outputs],
            [tf.TensorArray(tf.int32, rows, element_shape=[shape.rank]) for shape, _ in outputs],
        ),
    )
    return [
        _together(flat.concat(), sizes.stack(), shape, rows)
        for flat, sizes, (shape, _) in zip(values, shapes, outputs, strict=True)
    ]


def _shared(value: tf.Tensor | Differing) -> tf.Tensor:
    """Return an operand that all rows share, as a constant where it is one: in the loop that could not be seen."""
    assert not isinstance(value, Differing), "it has rows"
    known = tf.get_static_value(value)
    return value if known is None else tf.constant(known, value.dtype)


def _of_row(value: tf.Tensor | Differing, row: tf.Tensor) -> tf.Tensor:
    if not isinstance(value, Differing):
        return value[row]
    return value.dense[(row, *(slice(None) if length is None else slice(length[row]) for length in value.lengths))]


def _together(flat: tf.Tensor, sizes: tf.Tensor, shape: tf.TensorShape, rows: int) -> tf.Tensor | Differing:
    """Shapes: flat [n], sizes [rows, rank] -> [rows, *padded sizes]."""
    if shape.is_fully_defined():
        return tf.reshape(flat, [rows, *shape])
    place = tf.cumsum(tf.reduce_prod(sizes, 1), exclusive=True)
    is_there = tf.ones([rows], tf.bool)
    strides = tf.math.cumprod(sizes, axis=1, exclusive=True, reverse=True)
    for dim, known in enumerate(shape):
        width = longest(sizes[:, dim]) if known is None else known
        place = place[..., tf.newaxis] + tf.range(width) * tf.reshape(strides[:, dim], [rows, *[1] * (dim + 1)])
        inside = tf.reshape(in_range(width, sizes[:, dim]), [rows, *[1] * dim, width])
        is_there = is_there[..., tf.newaxis] & inside
    padded = tf.concat([flat, tf.zeros([1], flat.dtype)], 0)
    dense = tf.gather(padded, tf.where(is_there, place, tf.shape(flat)[0]))
    return Differing(dense, tuple(sizes[:, dim] if known is None else None for dim, known in enumerate(shape)))
