"""When the requests of an open loop are due, and to which model each goes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from loadtests.runs.load import Arrivals

__all__ = ["due_times", "turns"]

#: Models are drawn once for so many requests, which then repeat.
_DRAWN = 1 << 14


def due_times(arrivals: Arrivals, *, rate: float, seed: int = 0, offset: float = 0.0) -> Iterator[float]:
    """Yield times, ascending, of ``rate`` requests a second.

    ``constant``: evenly spaced, from ``offset`` spaces on. ``poisson``: independent of each other, as requests of many
    callers who don't know of each other are. Units: seconds from the start.
    """
    if arrivals == "constant":
        for number in itertools.count():
            yield (number + offset) / rate
    rng, due_s = random.Random(seed), 0.0
    while True:
        due_s += rng.expovariate(rate)
        yield due_s


def turns(weights: Sequence[float], *, seed: int = 0) -> Sequence[int]:
    """Return which model each request goes to, by weight and at random, to be repeated for ever."""
    if len(weights) == 1:
        return [0]
    return random.Random(seed).choices(range(len(weights)), weights, k=_DRAWN)
