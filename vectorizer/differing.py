"""Results of differing length: a value whose size depends on the example, as one tensor of all rows.

Theory of operation. What ``tf.boolean_mask`` or ``tf.strings.split`` gives has another size for each example, so that
the rows can't be stacked. While a batch is converted, and in the batched graph's answers, such a value is a padded
tensor and, beside it, the true size of every dimension in which the rows differ. The elements of a row come first in
each dimension, padding behind them; what the padding holds means nothing, and whoever lets it count puts something
harmless there first (``filled``).

The padded sizes are static where the op bounds them (no more elements are true than there are); where it does not (the
tokens of a line), they are the longest row's, known only when the graph runs: XLA can't compile that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

__all__ = ["Differing", "compacted", "from_flat", "in_range", "length_name", "longest", "resized", "rows_in"]


@dataclass(frozen=True, slots=True)
class Differing:
    """A padded value of all rows, and its true sizes.

    Shapes: dense [rows, *sizes], no size below 1 where rows differ; lengths has an int32 [rows] for each of the
        example's dimensions in which rows differ, None for one that has the same size in all of them.
    """

    dense: tf.Tensor
    lengths: tuple[tf.Tensor | None, ...]

    @property
    def is_fixed(self) -> bool:
        """True if no dimension differs."""
        return all(length is None for length in self.lengths)

    def size(self, dim: int) -> tf.Tensor:
        """Return the true size of a dimension, int32: [rows], or [] if it is the same in all."""
        length = self.lengths[dim]
        return rows_in(self.dense, dim + 1) if length is None else length

    def mask(self) -> tf.Tensor:
        """Return which elements are no padding. Shapes: [rows, *s], with 1 for what all rows have alike."""
        found = tf.ones([1] * (len(self.lengths) + 1), tf.bool)
        for dim, length in enumerate(self.lengths):
            if length is not None:
                inside = in_range(rows_in(self.dense, dim + 1), length)
                before, after = [1] * dim, [1] * (len(self.lengths) - dim - 1)
                found &= tf.reshape(inside, [rows_in(inside, 0), *before, rows_in(inside, 1), *after])
        return found

    def filled(self, value: Any) -> tf.Tensor:
        """Return the padded tensor with one value in all of its padding."""
        return self._chosen(tf.constant(value, self.dense.dtype))

    def blank(self) -> tf.Tensor:
        """Return the padded tensor with zeros, false or empty strings as padding."""
        return self._chosen(tf.zeros([], self.dense.dtype))

    def _chosen(self, padding: tf.Tensor) -> tf.Tensor:
        if len(self.lengths) == 1 or self.lengths[0] is None or any(length is not None for length in self.lengths[1:]):
            return tf.where(self.mask(), self.dense, padding)
        # Element by element, the mask would be broadcast: five times slower for 64 x 30 vectors of 32 numbers.
        vectors = tf.reshape(self.dense, tf.concat([[-1], tf.shape(self.dense)[2:]], 0))
        is_there = tf.reshape(in_range(rows_in(self.dense, 1), self.lengths[0]), [-1])
        blank = tf.fill(tf.shape(vectors), padding)
        chosen = tf.reshape(tf.raw_ops.Select(condition=is_there, x=vectors, y=blank), tf.shape(self.dense))
        return tf.ensure_shape(chosen, self.dense.shape)

    def flat(self) -> tf.Tensor:
        """Return the elements of all rows, one row after the other. Only the first dimension may differ."""
        assert self.lengths[0] is not None
        assert all(length is None for length in self.lengths[1:])
        return tf.boolean_mask(self.dense, in_range(rows_in(self.dense, 1), self.lengths[0]))


def rows_in(tensor: tf.Tensor, dim: int) -> Any:
    """Return the size of a dimension: a number if it is known, else a scalar."""
    known = tensor.shape[dim]
    return tf.shape(tensor)[dim] if known is None else known


def in_range(size: Any, length: tf.Tensor) -> tf.Tensor:
    """Return which of ``size`` places a row of ``length`` reaches. Shapes: length [rows] -> [rows, size]."""
    return tf.range(size) < length[:, tf.newaxis]


def longest(lengths: tf.Tensor) -> tf.Tensor:
    """Return the longest row's length, at least 1: a padded size that is known only when the graph runs."""
    return tf.maximum(tf.reduce_max(lengths), 1)


def resized(dense: tf.Tensor, axis: int, size: Any) -> tf.Tensor:
    """Cut or pad one dimension of a padded tensor to ``size``."""
    if isinstance(size, int) and dense.shape[axis] == size:
        return dense
    had = rows_in(dense, axis)
    more = tf.maximum(size - had, 0)
    pad = [[0, 0] for _ in range(dense.shape.rank)]
    pad[axis] = [0, more]
    fill = tf.zeros([], dense.dtype)
    cut = tf.pad(dense, pad, constant_values=fill)[(slice(None),) * axis + (slice(size),)]
    if isinstance(size, int):
        shape = dense.shape.as_list()
        shape[axis] = size
        cut = tf.ensure_shape(cut, shape)
    return cut


def compacted(dense: tf.Tensor, keep: tf.Tensor) -> Differing:
    """Keep some elements of each row, in their order, and move them together.

    Shapes: dense [rows, n, *s], keep bool [rows, n].
    """
    order, count = kept_order(keep)
    rest = (None,) * (dense.shape.rank - 2)
    return Differing(tf.gather(dense, order, batch_dims=1), (count, *rest))


def kept_order(keep: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the places of the elements to keep, in order and padded by 0, and their number.

    Shapes: keep bool [rows, n] -> int32 [rows, n], int32 [rows].
    """
    rows, n = rows_in(keep, 0), rows_in(keep, 1)
    if isinstance(n, int) and n == 0:
        keep, n = tf.zeros([rows, 1], tf.bool), 1
    number = tf.cumsum(tf.cast(keep, tf.int32), axis=1)
    # What is not kept goes to a place of its own behind all others.
    target = tf.where(keep, number - 1, n)
    row = tf.broadcast_to(tf.range(rows)[:, tf.newaxis], tf.shape(target))
    places = tf.broadcast_to(tf.range(n)[tf.newaxis], tf.shape(target))
    order = tf.scatter_nd(tf.stack([row, target], -1), places, tf.stack([rows, n + 1]))[:, :-1]
    return tf.ensure_shape(order, keep.shape), number[:, -1]


def from_flat(values: tf.Tensor, lengths: tf.Tensor, *, size: int | None = None) -> Differing:
    """Undo ``flat``: cut one row after the other from ``values``.

    Shapes: values [n, *s], lengths [rows]; the padded size is ``size``, or the longest row's.
    """
    lengths = tf.cast(lengths, tf.int32)
    starts = tf.cumsum(lengths, exclusive=True)
    width = longest(lengths) if size is None else size
    padding = tf.zeros(tf.concat([[1], tf.shape(values)[1:]], 0), values.dtype)
    place = tf.where(in_range(width, lengths), starts[:, tf.newaxis] + tf.range(width), tf.shape(values)[0])
    dense = tf.gather(tf.concat([values, padding], 0), place)
    return Differing(dense, (lengths, *(None,) * (values.shape.rank - 1)))


def length_name(output: str, dim: int) -> str:
    """Return what a batched graph calls the true sizes of an output's dimension."""
    return f"{output}__length_{dim}"


def lengths_beside(names: Sequence[str], values: Sequence[Any]) -> dict[str, tf.Tensor]:
    """Return what a batched graph answers: each output by name, with its lengths beside it."""
    answers: dict[str, tf.Tensor] = {}
    for name, value in zip(names, values, strict=True):
        if not isinstance(value, Differing):
            answers[name] = value
            continue
        answers[name] = value.dense
        for dim, length in enumerate(value.lengths):
            if length is not None:
                answers[length_name(name, dim)] = length
    return answers
