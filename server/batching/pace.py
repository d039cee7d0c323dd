"""How long work takes beside what its costs say: what a prediction of the near future is corrected by."""

from __future__ import annotations

import math

__all__ = ["Pace"]

#: Seconds of work over which the pace is averaged.
_MEMORY_S = 0.5
#: Further off than by these factors, a measurement says more of a pause than of the pace.
_LEAST, _MOST = 0.5, 8.0


class Pace:
    """Seconds that pass for each second of measured cost while there is something to do.

    Above 1 where the event loop needs time between batches, the machine is busy with something else, or the costs were
    measured on a better day. Averaged over the work of the last half second.
    """

    __slots__ = ("_busy_since_s", "seconds")

    def __init__(self) -> None:
        self.seconds = 1.0
        #: When the batch before ended, if rows were waiting then: what passes from there on belongs to the next.
        self._busy_since_s = math.inf

    def ran(self, *, predicted_s: float, dispatched_s: float, finished_s: float, is_busy: bool) -> None:
        """Note a batch that has ended; ``is_busy`` tells whether rows waited at its end."""
        took_s = finished_s - min(self._busy_since_s, dispatched_s)
        self._busy_since_s = finished_s if is_busy else math.inf
        weight = 1.0 - math.exp(-predicted_s / _MEMORY_S)
        self.seconds += weight * (min(_MOST, max(_LEAST, took_s / predicted_s)) - self.seconds)
