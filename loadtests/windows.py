"""Does something that goes on beside the load make callers wait? Windows with it and without, in turn.

A machine's own ups and downs are longer than a window, so that each window is compared with its neighbour; of all the
ratios the median counts. The load is an open loop at a share of what the server can do: callers who wait for their
answers would be fewer just when it matters.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from loadtests.driver import drive
from loadtests.overload import Overload, overload
from loadtests.workload import load

__all__ = ["Beside", "beside", "capacity"]


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What the pairs of windows saw. Ratios are with over without; ``failures`` counts anything but right answers."""

    p99_ratio: float
    p99_ratios: tuple[float, ...]
    quiet_p99_ms: float
    during_p99_ms: float
    n_answers: int
    failures: int

    def __str__(self) -> str:
        """Say it in a line."""
        listed = " ".join(f"{ratio:.2f}" for ratio in self.p99_ratios)
        return (
            f"p99 {self.during_p99_ms:.1f} ms with, {self.quiet_p99_ms:.1f} ms without: {self.p99_ratio:.2f}x, the "
            f"median of {len(self.p99_ratios)} pairs ({listed}); {self.n_answers:,} answers, {self.failures} failures"
        )


def capacity(url: str, workload: Path, *, callers: int = 32, duration_s: float = 3.0) -> float:
    """Return the requests a second that a closed loop gets from a server."""
    return drive(url, load(workload), callers=callers, duration_s=duration_s).requests_per_s


def beside(
    url: str,
    workload: Path,
    during: Callable[[], AbstractContextManager[None]],
    *,
    rate: float,
    n_pairs: int = 8,
    window_s: float = 3.0,
    go_on: Callable[[], bool] = lambda: True,
) -> Beside:
    """Load a server with ``rate`` requests a second, every second window inside of ``during``, and compare."""
    asked = load(workload)
    quiet: list[Overload] = []
    busy: list[Overload] = []

    def window(around: AbstractContextManager[None]) -> Overload:
        with around:
            return overload(url, asked, rate=rate, timeout_s=10.0, duration_s=window_s, connections=128)

    window(nullcontext())
    while len(busy) < n_pairs and go_on():
        quiet.append(window(nullcontext()))
        busy.append(window(during()))
    ratios = tuple(
        with_it.answered_p99_ms / without.answered_p99_ms for with_it, without in zip(busy, quiet, strict=True)
    )
    return Beside(
        p99_ratio=statistics.median(ratios),
        p99_ratios=ratios,
        quiet_p99_ms=statistics.median(seen.answered_p99_ms for seen in quiet),
        during_p99_ms=statistics.median(seen.answered_p99_ms for seen in busy),
        n_answers=sum(seen.statuses.get("200", 0) for seen in (*quiet, *busy)),
        failures=sum(seen.n_sent - seen.statuses.get("200", 0) + seen.wrong for seen in (*quiet, *busy)),
    )
