"""Running a policy over arrivals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from server.batching.costs import CostTable
from server.batching.simulation.arrivals import Arrivals
from server.batching.simulation.policies import Policy, Queue

__all__ = ["Outcome", "simulate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the rows. Waiting is from a row's arrival to its answer, seconds."""

    waited_s: tuple[float, ...]
    #: When the last row was answered.
    ended_s: float
    n_batches: int
    #: Rows of buckets that nobody filled.
    n_padding: int

    @property
    def mean_s(self) -> float:
        """Mean waiting."""
        return sum(self.waited_s) / len(self.waited_s) if self.waited_s else 0.0

    @property
    def rows_s(self) -> float:
        """Rows answered a second."""
        return len(self.waited_s) / self.ended_s if self.ended_s else 0.0

    def quantile_s(self, share: float) -> float:
        """Return the waiting that ``share`` of the rows don't exceed."""
        ordered = sorted(self.waited_s)
        return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)))]


def simulate(policy: Policy, costs: CostTable, arrivals: Arrivals) -> Outcome:
    """Serve all rows on one executor.

    A batch that has been started runs to its end; a policy that waits is asked again at each arrival.
    """
    queue = Queue(costs.cost(costs.buckets[-1]))
    waited: list[float] = []
    now_s = 0.0
    n_batches = n_padding = 0
    while True:
        while (next_s := arrivals.next_s()) is not None and next_s <= now_s:
            queue.arrived_s.append(arrivals.pop())
            queue.rate.n_counted += 1
        if not queue.n_rows:
            if next_s is None:
                break
            now_s = next_s
            continue
        queue.rate.update(now_s)
        choice = policy(costs, queue, now_s)
        if not choice.bucket:
            now_s = min(choice.until_s, math.inf if next_s is None else next_s)
            continue
        now_s += costs.cost(choice.bucket)
        n_taken = min(choice.bucket, queue.n_rows)
        n_batches += 1
        n_padding += choice.bucket - n_taken
        for _ in range(n_taken):
            waited.append(now_s - queue.arrived_s.popleft())
            arrivals.answered(now_s)
    return Outcome(waited_s=tuple(waited), ended_s=now_s, n_batches=n_batches, n_padding=n_padding)
