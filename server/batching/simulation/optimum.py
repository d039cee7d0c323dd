"""The least total waiting that a scheduler could reach who knew all arrivals in advance.

Rows are alike, so that serving them in order is best, and a schedule is a sequence of batches: how many rows each
takes. With the first ``k`` rows done and the executor free at ``t``, taking ``m`` more that have arrived by ``t``, or
waiting until they have, leaves ``k + m`` rows done at ``max(t, arrival of the last) + cost(m)``. What matters of the
past is ``t`` and the waiting so far: for each ``k`` the pairs are kept that no other beats in both.

Two prunings make it quick. A pair is also beaten by one that is free ``d`` later but has ``d`` times the remaining
rows less waiting: whatever follows can be done ``d`` later. And times are rounded up to a grid, so that what is found
is a schedule that exists, at most a grid step a batch worse than the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate

from server.batching.costs import CostTable

__all__ = ["optimal_waiting_s"]

#: Grid steps in the time of the quickest bucket.
_STEPS = 16


def optimal_waiting_s(costs: CostTable, arrivals_s: Sequence[float]) -> float:
    """Return the sum of all rows' waiting under the best schedule, seconds.

    Shapes: ``arrivals_s`` ascending. A batch of m rows costs what the cheapest bucket that holds them does.
    """
    n_rows = len(arrivals_s)
    most = costs.buckets[-1]
    cheapest = [0.0] * (most + 1)
    least = math.inf
    for size in range(most, 0, -1):
        least = min([least, *([costs.cost(size)] if size in costs.buckets else [])])
        cheapest[size] = least
    step_s = costs.quickest_s / _STEPS
    total = [0.0, *accumulate(arrivals_s)]
    #: For each number of rows done: grid cell of the time -> (time, waiting so far).
    fronts: list[dict[int, tuple[float, float]]] = [{} for _ in range(n_rows + 1)]
    fronts[0][0] = (0.0, 0.0)
    for done in range(n_rows):
        states = _unbeaten(fronts[done].values(), n_rows - done)
        fronts[done] = {}
        for free_s, waited_s in states:
            ready_s = free_s
            for size in range(1, min(most, n_rows - done) + 1):
                last_s = arrivals_s[done + size - 1]
                if size > 1 and last_s >= ready_s + cheapest[size - 1]:
                    break  # those before it could run first, and the executor be free again when it comes
                ready_s = max(free_s, last_s)
                end_s = ready_s + cheapest[size]
                more_s = size * end_s - (total[done + size] - total[done])
                cell = math.ceil(end_s / step_s)
                known = fronts[done + size].get(cell)
                if known is None or waited_s + more_s < known[1]:
                    fronts[done + size][cell] = (end_s, waited_s + more_s)
    return min(waited_s for _, waited_s in fronts[n_rows].values())


def _unbeaten(states: Iterable[tuple[float, float]], n_left: int) -> list[tuple[float, float]]:
    """Return the pairs of (free at, waiting so far) that can still be part of the best schedule."""
    kept: list[tuple[float, float]] = []
    for free_s, waited_s in sorted(states):
        if kept and waited_s >= kept[-1][1]:
            continue
        while kept and kept[-1][1] - waited_s >= (free_s - kept[-1][0]) * n_left:
            kept.pop()
        kept.append((free_s, waited_s))
    return kept
