"""Rows where a kernel does not expect them: beside shared values, and as the first number of an index."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer.converters.folding import reshape_to, sizes

__all__ = ["numbered", "repeated", "spread"]


def repeated(value: tf.Tensor, rows: Any, *, axis: int) -> tf.Tensor:
    """Repeat a shared value for each row, along a new dimension at ``axis``."""
    known = sizes(value)
    return tf.broadcast_to(tf.expand_dims(value, axis), _as_shape([*known[:axis], rows, *known[axis:]]))


def numbered(indices: tf.Tensor) -> tf.Tensor:
    """Put the number of its row before each index, so that it points into a stacked value.

    Shapes: [rows, *s, depth] -> [rows, *s, depth + 1].
    """
    rows, *rest = sizes(indices)
    number = reshape_to(tf.range(rows, dtype=indices.dtype), [rows, *[1] * len(rest)])
    return tf.concat([tf.broadcast_to(number, _as_shape([rows, *rest[:-1], 1])), indices], axis=-1)


def spread(value: Any, *, rank: int, to_rank: int) -> tf.Tensor:
    """Return a wrapped value of ``rank`` dimensions per example so that it broadcasts with one of ``to_rank``.

    Dimensions of 1 go between the rows and the example; a shared value broadcasts as it is.
    """
    tensor: tf.Tensor = value.t
    if not value.is_stacked or rank >= to_rank:
        return tensor
    rows, *rest = sizes(tensor)
    return reshape_to(tensor, [rows, *[1] * (to_rank - rank), *rest])


def _as_shape(dims: list[Any]) -> Any:
    return dims if all(isinstance(dim, int) for dim in dims) else tf.stack(dims)
