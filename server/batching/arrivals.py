"""How many rows a second come in: what the planner expects of the near future."""

from __future__ import annotations

import math

__all__ = ["ArrivalRate"]

#: Time over which the rate is averaged: some tens of batches of a small model, so that a burst shows within it.
_MEMORY_S = 5e-3
#: Shorter times than this are added up first.
_STEP_S = 5e-4


class ArrivalRate:
    """Rows a second, averaged exponentially: counted as they come, brought up to date now and then."""

    __slots__ = ("_n_counted", "_since_s", "rows_s")

    def __init__(self) -> None:
        #: Rows a second, as of the last update.
        self.rows_s = 0.0
        self._since_s = -math.inf
        self._n_counted = 0

    def count(self, n_rows: int) -> None:
        """Note that rows have arrived."""
        self._n_counted += n_rows

    def update(self, now_s: float) -> None:
        """Bring ``rows_s`` up to date."""
        passed_s = now_s - self._since_s
        if passed_s < _STEP_S:
            return
        if math.isfinite(passed_s):
            kept = math.exp(-passed_s / _MEMORY_S)
            self.rows_s = self.rows_s * kept + (1.0 - kept) * self._n_counted / passed_s
        self._since_s = now_s
        self._n_counted = 0
