"""How much work is due by when: whether one more item leaves everybody else in time.

Where deadlines come in another order than requests, an urgent item goes before those who have waited, and may make them
late. It is admitted only if, at each later deadline, what is due by then still fits before it (the processor demand
criterion for earliest-deadline-first: Baruah, Rosier and Howell, 1990). Work is kept in ``_BINS`` bins of deadlines,
counted anew whenever a bin's time has passed: only a busy server with mixed deadlines ever asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from server.batching.items import Item
from server.batching.queue import Group

__all__ = ["Demand"]

_BINS = 64


class Demand:
    """Seconds of execution by deadline, as of some moments ago."""

    __slots__ = ("_bin_s", "_counted_s", "_from_s", "_work_s")

    def __init__(self) -> None:
        self._counted_s = -math.inf
        self._from_s = 0.0
        self._bin_s = 0.0
        #: By bin; work that is due later than the last bin is not in danger.
        self._work_s = [0.0] * _BINS

    def admits(
        self, item: Item, groups: Iterable[Group], now_s: float, *, work_s: float, start_s: float, pace: float
    ) -> bool:
        """Return whether ``item`` and all that is due after it can be in time, and count it if so.

        Units: ``work_s`` seconds for the item; work begins ``start_s`` from now and takes ``pace`` seconds each second.
        """
        if now_s - self._counted_s >= self._bin_s:
            self._count(groups, now_s)
        own = self._bin_of(item.due_s)
        total_s = 0.0
        for number, bin_work_s in enumerate(self._work_s):
            total_s += bin_work_s + (work_s if number == own else 0.0)
            if number < own or not (bin_work_s or number == own):
                continue
            # Of a bin with several deadlines the first counts.
            due_s = self._from_s + number * self._bin_s if bin_work_s else item.due_s
            if start_s + pace * total_s > due_s - now_s:
                return False
        if own < _BINS:
            self._work_s[own] += work_s
        return True

    def _bin_of(self, due_s: float) -> int:
        if not self._bin_s:
            return _BINS
        return min(_BINS, max(0, int((due_s - self._from_s) / self._bin_s)))

    def _count(self, groups: Iterable[Group], now_s: float) -> None:
        dues = [(item, group.costs.row_s) for group in groups for item in group.waiting() if item.due_s < math.inf]
        self._counted_s = self._from_s = now_s
        self._bin_s = (max((item.due_s for item, _ in dues), default=now_s) - now_s) * 1.02 / _BINS
        self._work_s = [0.0] * _BINS
        for item, row_s in dues:
            number = self._bin_of(item.due_s)
            if number < _BINS:
                self._work_s[number] += (item.n_rows - item.next_row) * row_s
