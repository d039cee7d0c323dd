"""What stands in the place of a variant while a batch is converted: lists, stacks and optional values, as tensors.

A variant is opaque to the graph. What is in it is known here, as ordinary tensors that hold the elements of all rows,
so that loops and branches can carry, mask and choose them like anything else (``forms.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

__all__ = ["Content", "Depth", "Optional", "Stack"]


@dataclass(frozen=True, slots=True)
class Content:
    """What a list holds. Shapes: dense [n, rows, *element], or [n, *element] if all rows share it; None if blank."""

    n: int
    dtype: tf.DType
    element: tuple[int, ...] | None
    dense: tf.Tensor | None = None
    per_row: bool = False
    #: Handed on by writes, which are masked: whoever set it knows that nothing else happened since.
    origin: object | None = None
    #: Writes at an index that is not a constant were shown to stay within ``n``.
    is_bounded: bool = False
    #: The one write to a list that is otherwise blank, not yet made: its index, and the element of each row.
    pending: tuple[Any, tf.Tensor] | None = None
    #: The rows of ``dense`` that are the batch's; None: all. Only reads and writes of elements know of it.
    places: tf.Tensor | None = None

    def of_rows(self, rows: int, element: Sequence[int] | None = None) -> Content:
        """Return the list with elements for each row, blank only if its elements are still unknown."""
        known = self.element if self.element is not None else (None if element is None else tuple(element))
        if self.per_row or known is None:
            return self
        if self.dense is None:
            dense = tf.zeros([self.n, rows, *known], self.dtype)
        else:
            dense = tf.repeat(self.dense[:, tf.newaxis], rows, axis=1)
        return replace(self, element=known, dense=dense, per_row=True)

    def grown(self, n: int) -> Content:
        """Return the list with at least ``n`` elements, new ones zero."""
        if n <= self.n:
            return self
        if self.dense is None:
            return replace(self, n=n)
        more = tf.zeros([n - self.n, *self.dense.shape[1:]], self.dtype)
        return replace(self, n=n, dense=tf.concat([self.dense, more], 0))

    def with_dense(self, dense: tf.Tensor) -> Content:
        """Return the list with other elements for each row."""
        return replace(self, dense=dense, per_row=True, pending=None)


@dataclass(frozen=True, slots=True)
class Depth:
    """How many elements a stack has: ``base + offset``. Shapes: base [], or [rows] if per row; None for zero."""

    base: tf.Tensor | None = None
    offset: int = 0
    per_row: bool = False

    def moved(self, by: int) -> Depth:
        """Return the depth after pushes, or pops if negative."""
        return replace(self, offset=self.offset + by)

    def tensor(self) -> tf.Tensor:
        """Return it as int32."""
        if self.base is None:
            return tf.constant(self.offset, tf.int32)
        return self.base + self.offset if self.offset else self.base

    @property
    def known(self) -> int | None:
        """The number where it is known when the graph is built."""
        return self.offset if self.base is None else None


@dataclass(frozen=True, slots=True)
class Stack:
    """What a list holds that is only pushed to and popped from, as loops keep their intermediate values.

    ``element`` is the form of an element, None before the first push; ``leaves`` are the tensors of all elements, with
    a dimension of ``capacity`` before those that the leaf of an element has. What lies above the depth means nothing.
    """

    dtype: tf.DType
    depth: Depth
    #: None: it grows while the graph runs, and its first dimension is not known before.
    capacity: int | None = 0
    element: Any = None
    leaves: tuple[tf.Tensor, ...] = ()
    #: Handed on by pushes and pops: whoever set it knows that nothing else happened since.
    origin: object | None = None
    #: The row that each row reads in the place of its own.
    lender: tf.Tensor | None = None
    #: What the op that made it says of its elements' shape.
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Optional:
    """What a branch leaves for its gradient: wrapped values, or None if it was not this branch."""

    values: tuple[Any, ...] | None
