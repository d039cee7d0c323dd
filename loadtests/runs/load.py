"""How much is asked of a server, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

__all__ = ["Arrivals", "Load"]

Arrivals = Literal["poisson", "constant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A closed loop of ``callers``, or an open loop of ``rate`` requests a second.

    In a closed loop each caller sends its next request when it has the answer to the last. In an open loop requests are
    due at times that no answer changes, and latency counts from then; ``connections`` carry them, and one that is due
    while all are taken waits for one. ``warmup_s`` comes before ``duration_s`` and is not counted. ``timeout_s`` bounds
    the wait for an answer. No more than ``max_requests`` are sent.
    """

    callers: int | None = None
    rate: float | None = None
    arrivals: Arrivals = "poisson"
    connections: int = 128
    warmup_s: float = 1.0
    duration_s: float = 10.0
    timeout_s: float = 10.0
    max_requests: int = 1_000_000
    seed: int = 0

    @property
    def is_open(self) -> bool:
        """Whether requests come at their own times."""
        return self.rate is not None

    def share(self, index: int, n: int) -> Self:
        """Return the part of it that process ``index`` of ``n`` has to do."""
        if n == 1:
            return self
        callers = None if self.callers is None else _part(self.callers, index, n)
        return replace(
            self,
            callers=callers,
            rate=None if self.rate is None else self.rate / n,
            connections=max(1, _part(self.connections, index, n)),
            max_requests=_part(self.max_requests, index, n),
            seed=self.seed + index,
        )

    def __str__(self) -> str:
        """Say it in a few words."""
        if self.rate is None:
            return f"{self.callers} callers, closed loop"
        return f"{self.rate:,.4g} requests/s, open loop ({self.arrivals})"


def _part(total: int, index: int, n: int) -> int:
    return total // n + (index < total % n)
