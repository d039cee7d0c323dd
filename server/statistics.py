"""How requests and batches of each entry point went since it was loaded: sums for whoever asks, not for the planner.

A request costs a few additions, a batch some more. Times are seconds; whoever shows them chooses the unit.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from server.batching import Batch, Item, RowErrors
from server.quick_histogram import SECONDS, HistogramSeries

__all__ = ["BatchTimes", "EntryStatistics", "Statistics"]


class BatchTimes:
    """Batches, or requests in them, and the seconds that their steps took together."""

    __slots__ = ("graph_s", "n", "staging_s", "unstaging_s")

    def __init__(self) -> None:
        self.n = 0
        #: Gathering the rows; the graph; dividing the results, and handing the batch over and back.
        self.staging_s = self.graph_s = self.unstaging_s = 0.0

    def add(self, times: int, *, staging_s: float, graph_s: float, unstaging_s: float) -> None:
        """Count a batch ``times`` times."""
        self.n += times
        self.staging_s += times * staging_s
        self.graph_s += times * graph_s
        self.unstaging_s += times * unstaging_s


class EntryStatistics:
    """One entry point of a loaded version."""

    __slots__ = (
        "by_rows",
        "failed_s",
        "in_batches",
        "last_ended_s",
        "n_batches",
        "n_failed",
        "n_rows",
        "queued_s",
        "took",
    )

    def __init__(self) -> None:
        #: Requests that got their outputs: how many, from admission to their end, and what of that they waited.
        self.took = HistogramSeries(SECONDS)
        self.queued_s = 0.0
        #: Requests that were refused, or ended with an error.
        self.n_failed = 0
        self.failed_s = 0.0
        #: Rows that were executed, and the batches that they ran in.
        self.n_rows = self.n_batches = 0
        #: When a batch ended last, in seconds since 1970; 0: none has.
        self.last_ended_s = 0.0
        #: Every request with the times of its batch, and every batch by its rows without padding.
        self.in_batches = BatchTimes()
        self.by_rows: dict[int, BatchTimes] = {}

    def succeeded(self, *, took_s: float, queue_s: float) -> None:
        """Count a request that has its outputs."""
        took = self.took  # what its ``observe`` does: a call costs as much again
        took.counts[bisect_left(SECONDS, took_s)] += 1
        took.total += took_s
        self.queued_s += queue_s

    @property
    def n_succeeded(self) -> int:
        """Requests that got their outputs."""
        return self.took.n

    @property
    def succeeded_s(self) -> float:
        """Seconds from their admission to their end, together."""
        return self.took.total

    def failed(self, took_s: float) -> None:
        """Count a request that has none."""
        self.n_failed += 1
        self.failed_s += took_s

    def ran(self, batch: Batch, *, n_rows: int) -> None:
        """Count a batch that gave ``n_rows`` rows their outputs."""
        took_s = batch.finished_s - batch.dispatched_s
        staging_s, graph_s = batch.staged_s, batch.graph_s
        if math.isnan(graph_s):
            staging_s, graph_s = 0.0, took_s
        steps = {"staging_s": staging_s, "graph_s": graph_s, "unstaging_s": max(0.0, took_s - staging_s - graph_s)}
        self.n_rows += n_rows
        self.n_batches += 1
        self.last_ended_s = time.time()
        self.in_batches.add(len(batch.spans), **steps)
        by_rows = self.by_rows.get(batch.n_rows)
        if by_rows is None:
            by_rows = self.by_rows[batch.n_rows] = BatchTimes()
        by_rows.add(1, **steps)


class Statistics:
    """The statistics of all that is loaded. An ``Observer`` of the batching core; used on one thread."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int, str], EntryStatistics] = {}

    def open(self, model: str, version: int, entry: str) -> EntryStatistics:
        """Return new ones for an entry point that was loaded: what is loaded again begins at nothing."""
        opened = self._entries[model, version, entry] = EntryStatistics()
        return opened

    def close(self, model: str, version: int, entry: str, opened: EntryStatistics) -> None:
        """Forget those of an entry point that is unloaded, if they still are the ones that were opened for it."""
        if self._entries.get((model, version, entry)) is opened:
            del self._entries[model, version, entry]

    def took(self) -> Iterator[tuple[tuple[str, str, str], HistogramSeries]]:
        """Yield model, version and entry point of each, with how long its requests took."""
        for (model, version, entry), opened in self._entries.items():
            yield (model, str(version), entry), opened.took

    def dispatched(self, batch: Batch) -> None:
        """Nothing is counted before it has run."""

    def finished(self, batch: Batch, error: BaseException | None) -> None:
        """Count a batch that gave outputs to some of its rows."""
        key: Any = batch.group.key
        found = self._entries.get((key.model, key.version, key.entry))
        if found is None:
            return
        if error is None:
            found.ran(batch, n_rows=batch.n_rows)
        elif isinstance(error, RowErrors):
            found.ran(batch, n_rows=batch.n_rows - len(error.errors) - len(error.unsettled))

    def dropped(self, item: Item) -> None:
        """Its request is counted when it ends."""
