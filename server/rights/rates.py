"""Limits of rate: token buckets, each a single number, which processes of one server may share.

The number is the time at which a bucket will be full again (the "theoretical arrival time" of the generic cell rate
algorithm): taking from it moves that time on. So a bucket is eight bytes in a file that every process maps; two that
take in the same moment may take one for the price of one, which is all that there is to lose without a lock.

A request pays one when it comes, and the rest of its rows when it is known how many they are. It passes if one is
there: a request of more rows than a burst is not refused for ever, but leaves a debt, and whoever has debts waits.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Rate", "Rates"]

#: Places for buckets, found by a hash: two of a hundred tokens share one with a chance of one in two hundred. Pages
#: that nobody has touched take no memory.
_N_PLACES = 2**20
_PLACE_BYTES = 8


class Rates:
    """The buckets of a server. ``path``: the file that its processes share; None: there is one process."""

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Errors: OSError."""
        self._clock = clock
        n_bytes = _N_PLACES * _PLACE_BYTES
        if path is None:
            memory = mmap.mmap(-1, n_bytes)
        else:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(descriptor, n_bytes)
                memory = mmap.mmap(descriptor, n_bytes)
            finally:
                os.close(descriptor)
        self._places: memoryview[float] = memoryview(memory).cast("d")

    def rate(self, key: bytes, *, per_s: float, burst: float | None) -> Rate:
        """Return the bucket of ``key``, at least three bytes of a hash. It is as full as it was left."""
        place = int.from_bytes(key[:3], "little") % _N_PLACES
        return Rate(
            self._places, place, per_s=per_s, burst=max(1.0, per_s if burst is None else burst), clock=self._clock
        )


class Rate:
    """One bucket: ``per_s`` flow into it, and ``burst`` is what it holds."""

    __slots__ = ("_clock", "_full_s", "_place", "_places", "_step_s")

    def __init__(
        self, places: memoryview[float], place: int, *, per_s: float, burst: float, clock: Callable[[], float]
    ) -> None:
        self._places = places
        self._place = place
        self._step_s = 1.0 / per_s
        #: Seconds in which an empty bucket becomes full.
        self._full_s = burst / per_s
        self._clock = clock

    def take(self) -> float:
        """Take one. Returns 0, or, where there is none, the seconds until there will be; then nothing is taken."""
        now_s = self._clock()
        full_at_s = max(self._places[self._place], now_s) + self._step_s
        wait_s = full_at_s - now_s - self._full_s
        if wait_s > 1e-9:
            return wait_s
        self._places[self._place] = full_at_s
        return 0.0

    def charge(self, n: int) -> None:
        """Take ``n``, into debt if need be."""
        full_at_s = max(self._places[self._place], self._clock()) + n * self._step_s
        self._places[self._place] = full_at_s
