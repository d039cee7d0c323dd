"""Which rows a piece of a graph is for, while it is converted: the rows still in a loop, the rows that take a branch.

The others compute along. What they write is thrown away, but an index of theirs may be out of range: ops that know
the mask give them one that is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

__all__ = ["current_mask", "masked", "of_rows", "valid_index"]

#: Innermost last, and whether each is known to hold a row; one conversion runs at a time.
_masks: list[tuple[tf.Tensor, bool]] = []


@contextmanager
def masked(mask: tf.Tensor, *, is_some: bool = False) -> Iterator[None]:
    """Convert for the rows of ``mask`` that the surroundings are for too; ``is_some`` if there is at least one.

    Shapes: mask [rows].
    """
    outer = current_mask()
    _masks.append((mask if outer is None else mask & outer, is_some))
    try:
        yield
    finally:
        _masks.pop()


@contextmanager
def of_rows(places: tf.Tensor) -> Iterator[None]:
    """Convert a batch of some of the rows: of those at ``places``. Shapes: places [n]."""
    outer = current_mask()
    if outer is None:
        yield
        return
    _masks.append((tf.gather(outer, places), False))
    try:
        yield
    finally:
        _masks.pop()


def current_mask() -> tf.Tensor | None:
    """Return the rows that are converted for; None if all are. Shapes: [rows]."""
    return _masks[-1][0] if _masks else None


def valid_index(index: tf.Tensor, *, size: int, stacked: bool) -> tf.Tensor:
    """Return an index, 0 where it is out of range for a row that is not converted for.

    One that is in range stays: such a row may have borrowed it, along with what its element is for.
    Shapes: index [rows, *s] if stacked, else [*s].
    """
    mask = current_mask()
    if mask is None or (not stacked and _masks[-1][1]):
        return index
    counts = tf.reshape(mask, [-1, *[1] * (index.shape.rank - 1)]) if stacked else tf.reduce_any(mask)
    return tf.where(counts | ((index >= 0) & (index < size)), index, tf.zeros_like(index))
