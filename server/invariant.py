"""Invariant mode: which buckets may serve so that an example's answer has the same bits whatever the load.

Theory of operation
-------------------
The number of rows can change an example's bits, as kernels sum in an order that depends on it. So can the slot: the
last rows of a batch, or the last elements, which fill no vector register, are computed by other instructions (a softmax
of ten numbers in a batch of two; a product of matrices in one of eight). Neighbours do not, where the work is laid out
by size alone. So all examples of one padded length are served from buckets that gave the same bits for every probe, in
every slot that was tried, when the model was built. An example always has the same padded length, so that lengths are
chosen for independently. The choice is a pure function of what the builder wrote: it is the same after every restart
and in every process.

Two kinds of bucket are left out although the probes found nothing: one whose kernels share their work between threads,
as some of them add up in the order in which the threads finish; and a partitioned one, whose kernels see as many rows
as happen to be in the loop or branch together. A bucket of one row has no neighbours and may be partitioned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from server.artifact import Bucket, CompiledGraph, ExecutionMode

__all__ = ["Measured", "best_group", "invariant_set", "may_be_invariant", "row_cost_s"]

#: Of two sets whose throughput differs by less, the one that serves a lone example sooner is taken.
_AS_GOOD = 1.05


class Measured(Protocol):
    """What a choice goes by: a batch size and what a batch costs."""

    @property
    def rows(self) -> int:
        """Rows of a batch."""

    @property
    def cost_s(self) -> float:
        """Seconds of one call."""


B = TypeVar("B", bound=Measured)


def may_be_invariant(rows: int, mode: ExecutionMode) -> bool:
    """Return True unless the way in which a bucket is run lets neighbours or threads make a difference."""
    return mode.intra_op_threads == 1 and (rows == 1 or mode.control_flow == "masked")


def row_cost_s(buckets: Iterable[Measured]) -> float:
    """Return the least cost of a row in any of the buckets, seconds: the inverse of the throughput."""
    return min(bucket.cost_s / bucket.rows for bucket in buckets)


def best_group(groups: Iterable[Sequence[B]]) -> list[B]:
    """Return the group of the best throughput, by ascending rows; of those as good, the quickest for one row.

    Empty if there is none.
    """
    usable = [sorted(group, key=lambda bucket: bucket.rows) for group in groups if group]
    if not usable:
        return []
    limit_s = min(map(row_cost_s, usable)) * _AS_GOOD
    good = [group for group in usable if row_cost_s(group) <= limit_s]
    return min(good, key=lambda group: (min(bucket.cost_s for bucket in group), -len(group), group[0].rows))


def invariant_set(graphs: Sequence[CompiledGraph], groups: Iterable[Iterable[Bucket]]) -> list[CompiledGraph]:
    """Return the graphs that serve in invariant mode, of those of one entry point at one padded length.

    ``groups`` are the manifest's. A bucket that is in none of them was not steady, and is left out; empty if that
    leaves nothing.
    """
    usable = {(graph.rows, *graph.lengths): graph for graph in graphs if may_be_invariant(graph.rows, graph.mode)}
    return best_group([[usable[bucket] for bucket in group if bucket in usable] for group in groups])
