"""Running a loop or a branch on the rows that are in it alone, in a batch of fewer rows.

Masked, a batch pays for its longest row with every other. Where the work grows with the rows, it is cheaper to cut the
rows that are left out of the batch once they are few enough. pfor does so at every step, which makes shapes dynamic;
here the batch shrinks to one of a few static sizes, so that XLA compiles it, and is copied once for each of them.

It pays only for costly work and many rows, and depends on the data: ``vectorize`` makes both forms where it could,
and who serves them measures. Source: active-lane compaction in SIMD compilers, at the granularity of buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

__all__ = ["Partitioning", "branch_sizes", "first_rows", "loop_sizes", "partitioning", "shrinking"]

#: A smaller batch is left whole: its ops cost nearly as much on half of the rows.
_FEWEST = 8
#: What a loop shrinks to: every size is a copy of its graph. An LSTM's steps cost by the row (product of 128 by 512
#: under XLA: 8 rows 2.3 times two, 64 rows 4.8 times 8). Halves alone took 1.08 times as long at 64 rows.
_LOOP_SHARES = (3 / 4, 1 / 2, 3 / 8, 1 / 4, 1 / 8)
#: A loop in a loop that shrinks is copied with each of its sizes.
_INNER_SHARES = (1 / 2, 1 / 4)
#: Branches are run at one smaller size besides the whole batch: every size is a copy of the branch's graph.
_BRANCH_SHARE = 4


class Partitioning:
    """Whether to partition, and in how many places that may pay."""

    def __init__(self, *, does: bool = True) -> None:
        self.does = does
        #: Loops and branches of this conversion that were partitioned, or could have been.
        self.n_places = 0
        #: How many loops that shrink the conversion is inside of.
        self.depth = 0

    def found(self) -> bool:
        """Count a place; return True if it is to be partitioned."""
        self.n_places += 1
        return self.does


#: Innermost last; one conversion runs at a time.
_wanted: list[Partitioning] = []


@contextmanager
def partitioning(wanted: Partitioning) -> Iterator[None]:
    """Convert loops and branches as ``wanted``, and count there where it may pay to partition them."""
    _wanted.append(wanted)
    try:
        yield
    finally:
        _wanted.pop()


@contextmanager
def shrinking() -> Iterator[None]:
    """Convert the body of a loop that shrinks."""
    _wanted[-1].depth += 1
    try:
        yield
    finally:
        _wanted[-1].depth -= 1


def loop_sizes(rows: int) -> tuple[int, ...]:
    """Return the batch sizes that a loop of ``rows`` rows shrinks to, descending; none if it should not."""
    if not _wanted or rows < _FEWEST:
        return ()
    sizes: list[int] = []
    for share in _INNER_SHARES if _wanted[-1].depth else _LOOP_SHARES:
        size = int(rows * share)
        if size >= 2 and (sizes[-1] if sizes else rows) - size >= 2:
            sizes.append(size)
    return tuple(sizes) if _wanted[-1].found() else ()


def branch_sizes(rows: int) -> tuple[int, ...]:
    """Return the smaller batch sizes that a branch of ``rows`` rows may run at, ascending; none if it should not."""
    if not _wanted or rows < _FEWEST:
        return ()
    return (max(1, rows // _BRANCH_SHARE),) if _wanted[-1].found() else ()


def first_rows(mask: tf.Tensor, n: int) -> tf.Tensor:
    """Return the first ``n`` rows in the order: those of ``mask``, then the others.

    Shapes: mask [rows] -> int32 [n].
    """
    return tf.math.top_k(tf.cast(mask, tf.int32), k=n).indices
