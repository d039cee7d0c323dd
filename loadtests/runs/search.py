"""How a ramp looks for the highest rate that a server carries: pure, one rate after the other.

The rate doubles until it doesn't hold (or halves until it does), then the gap is narrowed by the geometric mean until
its ends are within the precision. The best rate has to hold a second time: near the edge a single step holds by chance.
If it doesn't, the search goes on below it. Likewise a rate has to miss twice, unless it does so by far: a moment of
somebody else's work looks like an edge too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["Capacity", "Search"]

#: Requests a second below which nothing is searched.
_LOWEST = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What was found. ``rate`` is None if no rate held; ``is_confirmed``: it held twice; ``reason``: why it ended."""

    rate: float | None
    is_confirmed: bool
    reason: str


@dataclass(kw_only=True)
class Search:
    """Ask ``next_rate``, try it, ``tell`` how it went, until ``next_rate`` is None; then ``capacity`` says it."""

    first_rate: float
    highest_rate: float
    precision: float = 0.05
    max_steps: int = 24
    #: The rate to be tried next; None: the search is over.
    next_rate: float | None = field(init=False)
    capacity: Capacity = field(init=False)
    _held: dict[float, int] = field(init=False, default_factory=dict)
    _missed: set[float] = field(init=False, default_factory=set)
    _failed: float = field(init=False, default=math.inf)
    _n_steps: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.next_rate = min(max(self.first_rate, _LOWEST), self.highest_rate)
        self.capacity = Capacity(rate=None, is_confirmed=False, reason="nothing was tried")

    def tell(self, *, holds: bool, is_clear: bool = True, is_generator_limit: bool = False) -> None:
        """Take how ``next_rate`` went.

        ``is_clear``: it missed by far, so that there is nothing to be tried again. ``is_generator_limit``: that it
        didn't hold may be the generator's doing.
        """
        rate = self.next_rate
        assert rate is not None, "the search is over"
        self._n_steps += 1
        if holds:
            self._held[rate] = self._held.get(rate, 0) + 1
        elif not is_clear and rate not in self._missed and self._n_steps < self.max_steps:
            self._missed.add(rate)
            return
        else:
            self._failed = min(self._failed, rate)
            # What held at or above a rate that has failed since was luck.
            self._held = {each: count for each, count in self._held.items() if each < rate}
        if not holds and is_generator_limit:
            self._end("the load generator itself was the limit: the server may do more")
            return
        self._go_on()

    def stop(self, reason: str) -> None:
        """End the search before it is over."""
        self._end(reason)

    def _go_on(self) -> None:
        best = max(self._held, default=None)
        if best is not None and self._held[best] > 1 and self._is_narrow(best):
            if best >= self.highest_rate:
                self._end("it held at the highest rate that was allowed")
            else:
                self._end(f"the next rate that was tried did not hold, within {self.precision:.0%} of it")
        elif self._n_steps >= self.max_steps:
            self._end(f"{self.max_steps} steps were allowed")
        elif best is None:
            lower = self._failed / 2
            if lower < _LOWEST:
                self._end("not even one request a second held")
            else:
                self.next_rate = lower
        elif self._is_narrow(best):
            self.next_rate = best
        elif math.isinf(self._failed):
            self.next_rate = min(best * 2, self.highest_rate)
        else:
            self.next_rate = math.sqrt(best * self._failed)

    def _is_narrow(self, best: float) -> bool:
        return best >= self.highest_rate or self._failed / best <= 1 + self.precision

    def _end(self, reason: str) -> None:
        best = max(self._held, default=None)
        self.capacity = Capacity(rate=best, is_confirmed=best is not None and self._held[best] > 1, reason=reason)
        self.next_rate = None
