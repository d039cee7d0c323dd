"""How many rows a second come in: what the planner expects of the near future."""

from __future__ import annotations

import math

__all__ = ["ArrivalRate"]

#: Least time over which the rate is averaged: some tens of batches of a small model, so that a burst shows within it.
_MEMORY_S = 5e-3
#: Of a slow model, so many of its largest batches: the arrivals during one tell little about the next.
_MEMORY_BATCHES = 4
#: Shorter times than this are added up first.
_STEP_S = 100e-6


class ArrivalRate:
    """Rows a second, averaged exponentially: counted as they come, brought up to date now and then.

    Rows and time are forgotten alike, so that the first milliseconds give the rate that they had, not one that still
    grows from nothing. ``batch_s``: seconds of the longest batch.
    """

    __slots__ = ("_memory_s", "_n_kept", "_since_s", "_time_kept_s", "n_counted", "rows_s")

    def __init__(self, batch_s: float = 0.0) -> None:
        #: Rows a second, as of the last update.
        self.rows_s = 0.0
        self._memory_s = max(_MEMORY_S, _MEMORY_BATCHES * batch_s)
        self._since_s = -math.inf
        #: Rows that have come since then, written by who sees them.
        self.n_counted = 0
        #: What is remembered: rows, and the time in which they came.
        self._n_kept = 0.0
        self._time_kept_s = 0.0

    def update(self, now_s: float) -> None:
        """Bring ``rows_s`` up to date."""
        passed_s = now_s - self._since_s
        if passed_s < _STEP_S:
            return
        if math.isfinite(passed_s):
            memory_s = self._memory_s
            kept = math.exp(-passed_s / memory_s)
            came_s = memory_s * (1.0 - kept)
            self._n_kept = self._n_kept * kept + self.n_counted * came_s / passed_s
            self._time_kept_s = self._time_kept_s * kept + came_s
            self.rows_s = self._n_kept / self._time_kept_s
        self._since_s = now_s
        self.n_counted = 0
