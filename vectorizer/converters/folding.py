"""Rows in the place of another dimension: the example's own batch, or its channels.

Kernels for images take a batch of them, and a per-example function gives them a batch of its own, mostly of one
image. Whatever a kernel does with each image alone, it does with the images of all rows at once: the row
dimension is merged into the batch. What it does with each channel alone, it does with the channels of all rows:
this is the way where an operand that belongs to the channels, as a filter does, differs from row to row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, same_op, stacked, wrap
from vectorizer.converters.shapes import reshaped

__all__ = ["batch_folding", "folded", "folded_channels", "reshape_to", "sizes", "unfolded", "unfolded_channels"]


def sizes(tensor: tf.Tensor) -> list[Any]:
    """Return the sizes of a tensor of known rank: numbers where they are known, else scalar tensors."""
    if tensor.shape.is_fully_defined():
        return list(tensor.shape)
    dynamic = tf.shape(tensor)
    return [dynamic[dim] if size is None else size for dim, size in enumerate(tensor.shape)]


def reshape_to(tensor: tf.Tensor, shape: Sequence[Any]) -> tf.Tensor:
    """Reshape to sizes that may be numbers or tensors."""
    if tensor.shape.is_fully_defined() and all(isinstance(size, int) for size in shape):
        return reshaped(tensor, list(shape))
    return tf.reshape(tensor, tf.stack(list(shape)))


def folded(tensor: tf.Tensor) -> tf.Tensor:
    """Merge the rows into the first dimension: ``[rows, n, *s]`` -> ``[rows * n, *s]``."""
    rows, n, *rest = sizes(tensor)
    return reshape_to(tensor, [rows * n, *rest])


def unfolded(tensor: tf.Tensor, rows: Any) -> tf.Tensor:
    """Undo ``folded``: ``[rows * n, *s]`` -> ``[rows, n, *s]``."""
    all_rows, *rest = sizes(tensor)
    return reshape_to(tensor, [rows, all_rows // rows, *rest])


def folded_channels(tensor: tf.Tensor, *, axis: int = -1) -> tf.Tensor:
    """Merge the rows into a later dimension: ``[rows, *s, c]`` -> ``[*s, rows * c]``.

    ``axis`` is that dimension, counted from the end: -2 for ``[rows, *s, c, m]`` -> ``[*s, rows * c, m]``.
    """
    rank = len(tensor.shape)
    at = rank + axis
    moved = tf.transpose(tensor, [*range(1, at), 0, *range(at, rank)])
    shape = sizes(moved)
    return reshape_to(moved, [*shape[: at - 1], shape[at - 1] * shape[at], *shape[at + 1 :]])


def unfolded_channels(tensor: tf.Tensor, rows: Any, *, axis: int = -1) -> tf.Tensor:
    """Undo ``folded_channels``."""
    shape = sizes(tensor)
    at = len(shape) + axis
    split = reshape_to(tensor, [*shape[:at], rows, shape[at] // rows, *shape[at + 1 :]])
    return tf.transpose(split, [at, *range(at), *range(at + 1, len(shape) + 1)])


def batch_folding(operands: Collection[int]) -> Converter:
    """Return the converter of an op that treats each entry of its first dimension alone.

    ``operands`` have that dimension; the others must be the same for all rows. Every output has it too.
    """

    def convert(pfor_input: Any) -> Any:
        inputs = [
            stacked(value, pfor_input) if index in operands else pfor_input.unstacked_input(index)
            for index, value in enumerate(pfor_input.inputs)
        ]
        rows = sizes(inputs[min(operands)])[0]
        outputs = same_op(
            pfor_input, [folded(value) if index in operands else value for index, value in enumerate(inputs)]
        )
        return [wrap(unfolded(output, rows), stacked=True) for output in outputs]

    return convert
