"""What it brings to count the rows that will arrive: the planner's choice of bucket in virtual time.

One executor, one queue, cost curves of several shapes; Poisson arrivals at several loads and closed loops of several
sizes. Prints the mean waiting with the choice that ignores arrivals and with the one that counts them. Run it with
``python -m benchmarks.planner_arrivals``; it takes a minute and no other core.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterator

from server.batching import CostTable
from server.batching.arrivals import ArrivalRate

__all__ = ["main"]

_US = 1e-6
#: Microseconds by bucket: measured (MLP, LSTM of 64 steps under XLA), and made up where a shape has no example.
_CURVES = {
    "mlp": {1: 32, 2: 38, 4: 38, 8: 44, 16: 55, 32: 90, 64: 160},
    "lstm": {1: 680, 2: 1140, 4: 1515, 8: 2700, 16: 5170, 32: 9760, 64: 17860},
    "fixed cost": {1: 1000, 2: 1010, 4: 1020, 8: 1040, 16: 1080, 32: 1160, 64: 1320},
    "linear": {1: 100, 2: 200, 4: 400, 8: 800, 16: 1600, 32: 3200, 64: 6400},
    "non-monotone": {1: 100, 2: 180, 4: 160, 8: 400, 16: 380, 32: 900, 64: 2000},
}
_LENGTH_S = 2.0


class _Caller:
    """Arrivals of one run: ``next_s`` is the next one's time; ``answered`` may bring more."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._pending: list[float] = []

    def poisson(self, rows_s: float) -> _Caller:
        now_s = 0.0
        while now_s < _LENGTH_S:
            now_s += self._random.expovariate(rows_s)
            self._pending.append(now_s)
        self._think_s = 0.0
        return self

    def closed(self, callers: int, think_s: float) -> _Caller:
        self._pending = [self._random.random() * think_s for _ in range(callers)]
        heapq.heapify(self._pending)
        self._think_s = think_s
        return self

    def until(self, now_s: float) -> Iterator[float]:
        while self._pending and self._pending[0] <= now_s:
            yield heapq.heappop(self._pending)

    def next_s(self) -> float | None:
        return self._pending[0] if self._pending else None

    def answered(self, now_s: float) -> None:
        if self._think_s:
            heapq.heappush(self._pending, now_s + self._random.expovariate(1 / self._think_s))


def _mean_waiting_s(costs: CostTable, caller: _Caller, *, counts_arrivals: bool) -> float:
    queue: deque[float] = deque()
    rate = ArrivalRate()
    now_s = waited_s = 0.0
    n_answered = 0
    while now_s < _LENGTH_S or queue:
        for arrived_s in caller.until(now_s) if now_s < _LENGTH_S else ():
            queue.append(arrived_s)
            rate.count(1)
        if not queue:
            following = caller.next_s()
            if following is None:
                break
            now_s = following
            continue
        n_arriving = rate.rows_s * costs.clear_s(len(queue)) if counts_arrivals else 0.0
        bucket = costs.best(len(queue), n_arriving)
        rate.update(now_s)
        now_s += costs.cost(bucket)
        for _ in range(min(bucket, len(queue))):
            waited_s += now_s - queue.popleft()
            n_answered += 1
            caller.answered(now_s)
    return waited_s / n_answered


def main() -> None:
    """Print a table."""
    print(f"{'costs':<14} {'arrivals':<22} {'ignored us':>11} {'counted us':>11} {'ratio':>6}")
    for name, curve in _CURVES.items():
        costs = CostTable({rows: cost * _US for rows, cost in curve.items()})
        runs: list[tuple[str, float, int]] = [
            *((f"Poisson, {load:.0%} load", load / costs.row_s, 0) for load in (0.3, 0.6, 0.8, 0.95)),
            *((f"closed, {callers} callers", 5 * costs.quickest_s, callers) for callers in (8, 32, 64, 128)),
        ]
        for what, number, callers in runs:
            ignored, counted = (
                _mean_waiting_s(
                    costs,
                    _Caller(1).closed(callers, number) if callers else _Caller(1).poisson(number),
                    counts_arrivals=counts,
                )
                for counts in (False, True)
            )
            print(f"{name:<14} {what:<22} {ignored / _US:>11.0f} {counted / _US:>11.0f} {counted / ignored:>6.2f}")


if __name__ == "__main__":
    main()
