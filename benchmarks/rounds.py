"""Timing contenders in turn, so that a slow moment of the machine hits all of them.

Absolute times mean little on a machine that does other things as well. Ratios are taken within a round, between
timings that lie milliseconds apart, and the median of the rounds counts. Each round goes through them in another order,
as who comes after whom decides what is in the caches. What is timed is the processor's time of the
contender's process: all contenders here are bound to one thread, so that on an idle machine it is the time on the
clock, and on a busy one it leaves out the time that others had the core for.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

__all__ = ["Timer", "median_ratio", "timed_in_rounds", "timer_of"]

#: Runs a contender so many times, after one run that does not count, and returns the time of one run, seconds.
Timer = Callable[[int], float]

#: One timing covers as many calls as take this long, so that the clock's own cost does not matter.
_TIMING_S = 2e-3
_MAX_CALLS = 50


def timer_of(call: Callable[[], object]) -> Timer:
    """Return the timer of something that runs in this process."""

    def timer(n_calls: int) -> float:
        call()  # The call after another contender's finds cold caches.
        start_s = time.process_time()
        for _ in range(n_calls):
            call()
        return (time.process_time() - start_s) / n_calls

    return timer


def timed_in_rounds(
    timers: Mapping[str, Timer], *, budget_s: float, min_rounds: int = 7, max_rounds: int = 201
) -> dict[str, list[float]]:
    """Time all contenders in turn until the budget is spent. Units: seconds for each call, one entry a round."""
    order = random.Random(0)
    n_calls = {name: max(1, min(_MAX_CALLS, int(_TIMING_S / max(timer(1), 1e-9)))) for name, timer in timers.items()}
    times: dict[str, list[float]] = {name: [] for name in timers}
    end_s = time.perf_counter() + budget_s
    for n_rounds in range(max_rounds):
        if n_rounds >= min_rounds and time.perf_counter() > end_s:
            break
        for name in order.sample(list(timers), len(timers)):
            times[name].append(timers[name](n_calls[name]))
    return times


def median_ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the rounds' ratios: above 1 where ``times`` are the longer ones."""
    return statistics.median(a / b for a, b in zip(times, others, strict=True))
