"""What to run next: our planner's choice of bucket, and the policies of other servers.

A policy is asked when the executor is free and at least one row waits.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from server.batching.arrivals import ArrivalRate
from server.batching.costs import CostTable

__all__ = [
    "Choice",
    "Policy",
    "Queue",
    "batch_down",
    "minimize_cost_per_row",
    "pad_up",
    "planned",
    "singles",
    "window",
]


class Queue:
    """The rows that wait, as a policy sees them. ``batch_s``: seconds of the longest batch."""

    def __init__(self, batch_s: float = 0.0) -> None:
        #: When each waiting row arrived, the oldest first.
        self.arrived_s: deque[float] = deque()
        #: Rows a second that came in lately.
        self.rate = ArrivalRate(batch_s)

    @property
    def n_rows(self) -> int:
        """Rows that wait."""
        return len(self.arrived_s)


@dataclass(frozen=True, slots=True)
class Choice:
    """Run up to ``bucket`` rows now, or, with a bucket of 0, nothing before ``until_s`` or until more rows arrive."""

    bucket: int
    until_s: float = math.inf


Policy = Callable[[CostTable, Queue, float], Choice]


def planned(costs: CostTable, queue: Queue, _now_s: float) -> Choice:
    """Choose as the planner does for one queue without deadlines."""
    return Choice(costs.best(queue.n_rows, queue.rate.rows_s * costs.row_s))


def singles(costs: CostTable, _queue: Queue, _now_s: float) -> Choice:
    """Run row by row."""
    return Choice(costs.buckets[0])


def pad_up(costs: CostTable, queue: Queue, _now_s: float) -> Choice:
    """Run all that waits in the next larger bucket. Source: TensorFlow's batch_padding_policy PAD_UP."""
    return Choice(_above(costs, queue.n_rows))


def batch_down(costs: CostTable, queue: Queue, _now_s: float) -> Choice:
    """Fill the next smaller bucket, and leave the rest in the queue. Source: TensorFlow's BATCH_DOWN."""
    return Choice(_below(costs, queue.n_rows))


def minimize_cost_per_row(costs: CostTable, queue: Queue, _now_s: float) -> Choice:
    """Pad up or batch down, whichever costs less for each row. Source: TensorFlow's MINIMIZE_TPU_COST_PER_REQUEST."""
    n_rows = queue.n_rows
    up, down = _above(costs, n_rows), _below(costs, n_rows)
    up_s, down_s = costs.cost(up) / min(up, n_rows), costs.cost(down) / min(down, n_rows)
    return Choice(down if down_s < up_s else up)


def window(delay_s: float) -> Policy:
    """Return the policy that waits for a full batch, at most ``delay_s`` after the oldest row, and pads up.

    Source: batch_timeout_micros, max_queue_delay_microseconds and their like.
    """

    def choose(costs: CostTable, queue: Queue, now_s: float) -> Choice:
        due_s = queue.arrived_s[0] + delay_s
        if queue.n_rows >= costs.buckets[-1] or now_s >= due_s:
            return pad_up(costs, queue, now_s)
        return Choice(0, due_s)

    return choose


def _above(costs: CostTable, n_rows: int) -> int:
    return next((bucket for bucket in costs.buckets if bucket >= n_rows), costs.buckets[-1])


def _below(costs: CostTable, n_rows: int) -> int:
    return max((bucket for bucket in costs.buckets if bucket <= n_rows), default=costs.buckets[0])
