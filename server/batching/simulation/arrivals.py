"""When rows arrive: fixed traces of several shapes, and callers who send again once they are answered."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Protocol

__all__ = ["Arrivals", "ClosedLoop", "Rng", "Trace", "bursts", "diurnal", "poisson"]


class Rng(Protocol):
    """What is asked of a source of random numbers: ``random.Random`` has it."""

    def random(self) -> float:
        """Return a number from 0 up to 1."""

    def expovariate(self, lambd: float) -> float:
        """Return an exponentially distributed number of mean ``1 / lambd``."""


class Arrivals(Protocol):
    """What a simulation asks of a source of rows. Times are seconds from its start."""

    def next_s(self) -> float | None:
        """Return when the next row arrives; None if none comes any more unless somebody is answered."""

    def pop(self) -> float:
        """Take the next row."""

    def answered(self, now_s: float) -> None:
        """Note that one row was answered."""


class Trace:
    """Arrivals that do not depend on the answers."""

    def __init__(self, times_s: Sequence[float]) -> None:
        self.times_s = tuple(sorted(times_s))
        self._taken = 0

    def next_s(self) -> float | None:
        """Return when the next row arrives."""
        return self.times_s[self._taken] if self._taken < len(self.times_s) else None

    def pop(self) -> float:
        """Take the next row."""
        self._taken += 1
        return self.times_s[self._taken - 1]

    def answered(self, now_s: float) -> None:
        """Nobody waits for an answer to send the next."""


class ClosedLoop:
    """``n_callers`` who each send one row, wait for its answer, and send the next after thinking a while.

    Units: thinking takes ``think_s`` on average, exponentially distributed; nobody sends after ``length_s``.
    """

    def __init__(self, rng: Rng, *, n_callers: int, think_s: float, length_s: float) -> None:
        self._rng = rng
        self._think_s = think_s
        self._length_s = length_s
        self._pending = sorted(rng.random() * think_s for _ in range(n_callers))

    def next_s(self) -> float | None:
        """Return when the next row arrives."""
        return self._pending[0] if self._pending else None

    def pop(self) -> float:
        """Take the next row."""
        return heapq.heappop(self._pending)

    def answered(self, now_s: float) -> None:
        """Let one caller think, and send again."""
        following_s = now_s + self._rng.expovariate(1 / self._think_s)
        if following_s < self._length_s:
            heapq.heappush(self._pending, following_s)


def poisson(rng: Rng, *, rate: float, length_s: float) -> Trace:
    """Return ``rate`` rows a second, independent of each other."""
    return Trace(_varying(rng, lambda _: rate, rate, length_s))


def diurnal(rng: Rng, *, rate: float, length_s: float) -> Trace:
    """Return rows that come and go once, as over a day: from a tenth of the mean ``rate`` up to nearly twice it."""

    def now(at_s: float) -> float:
        return rate * (1.0 - 0.9 * math.cos(2 * math.pi * at_s / length_s))

    return Trace(_varying(rng, now, 1.9 * rate, length_s))


def bursts(rng: Rng, *, rate: float, length_s: float, n_rows: int) -> Trace:
    """Return groups of about ``n_rows`` rows (geometrically distributed) at once, ``rate`` rows a second on average."""
    times_s: list[float] = []
    for at_s in _varying(rng, lambda _: rate / n_rows, rate / n_rows, length_s):
        size = 1
        while rng.random() > 1 / n_rows:
            size += 1
        times_s.extend([at_s] * size)
    return Trace(times_s)


def _varying(rng: Rng, rate: Callable[[float], float], highest: float, length_s: float) -> list[float]:
    """Return an inhomogeneous Poisson process. Source: thinning, Lewis and Shedler, 1979."""
    times_s = []
    now_s = rng.expovariate(highest)
    while now_s < length_s:
        if rng.random() * highest < rate(now_s):
            times_s.append(now_s)
        now_s += rng.expovariate(highest)
    return times_s
