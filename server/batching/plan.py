"""Which rows run next, in which bucket: the planner.

Theory of operation
-------------------
Requests wait in *queues*, one for each group (model version, entry point, padded lengths), because only rows
of one group can share a batch. Whenever an executor is free the batcher asks ``plan`` what to start. The
answer is a value, a pure function of the arguments: no clock, no randomness, no hidden state. Five rules make it.

1. *Never idle by choice.* A free executor and a waiting row give a ``Dispatch``. Nothing is held back here in
   the hope that more rows come: while a batch runs the next one gathers by itself, so that batches grow with
   the load, and a lone request waits for nobody. (The batcher does not ask while rows wait for callers who have just
   been answered and are about to ask again: ``returning``.)

2. *Oldest first.* The queue whose head arrived first is served, and a batch takes the rows of its queue in
   order of arrival. Whatever came earlier is at the head sooner, so no queue starves, however many there are.
   The bucket is the one that makes all callers wait least in total, at the load that is seen (``CostTable.best``).

3. *Earliest deadline first, once deadlines are in danger.* If the time to clear everything that waits ends
   before the nearest deadline, any order meets all deadlines and rule 2 stands. Otherwise the queue with the
   nearest deadline goes first, and rows leave it in order of their deadlines. As time passes every deadline
   becomes the nearest, so that this starves nobody either; only items without one yield while it lasts.

4. *Save a deadline only where that costs less than it saves.* When the best bucket would end after the nearest
   deadlines, a quicker bucket might still meet them, but if it is an inefficient one, its waste makes others
   late in turn. Under overload that ends with everything running alone and everything late. So the rows that
   the quick bucket saves are weighed against the rows that could have run in the time it wastes. If they
   weigh less, the late rows are given up (the batcher answers them with an error, unexecuted) and the best
   bucket runs with the others.

5. *No model's flood starves another.* Rules 2 to 4 choose between the queues of the models that have had little of the
   executor's time; one that has had ``fair_within_s`` more than another whose rows wait is passed over (``Share``).
   Deadlines don't change this: who sends more than can be served has them all in danger, always.

A queue is seen through a few facts (``Waiting``), and a decision looks at each queue once. With one model under
ordinary load that is one table look-up.

The batcher keeps one precondition: rows that even the quickest bucket can't finish in time were taken out
before ``plan`` is asked.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from server.batching.costs import CostTable
from server.batching.shares import Share

__all__ = ["Dispatch", "Idle", "Policy", "Reason", "WaitUntil", "Waiting", "plan"]


class Waiting(Protocol):
    """What the planner sees of a queue that has waiting rows. Times are seconds of the batcher's clock."""

    @property
    def costs(self) -> CostTable:
        """Measured cost of each bucket."""

    @property
    def n_rows(self) -> int:
        """Rows that wait; at least 1."""

    @property
    def oldest_s(self) -> float:
        """When the item at the head arrived."""

    @property
    def due_s(self) -> float:
        """The nearest deadline of a waiting item; infinity if none has one."""

    @property
    def load(self) -> float:
        """What has arrived lately, as a share of what one executor could run."""

    @property
    def share(self) -> Share:
        """The execution time that its model has had."""

    def rows_due_before(self, limit_s: float) -> int:
        """Count the waiting rows whose deadline is before ``limit_s``. Asked only when a deadline is in danger."""


QueueT = TypeVar("QueueT", bound=Waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What an operator may choose.

    ``cost_margin``: measured costs times this are what a deadline must leave room for. 1.0 takes the median as
    it is. Higher answers fewer requests late and refuses more that would have been in time.
    ``fair_within_s``: how much more execution time a model may have had than another whose rows wait. Longer keeps
    nearer to the order of arrival, shorter makes a flood felt less by the callers of other models.
    ``returning_s``: how long at most a batch waits for callers who were just answered (``returning``). 0: not at all.
    """

    cost_margin: float = 1.0
    fair_within_s: float = 5e-3
    returning_s: float = 0.0

    def __post_init__(self) -> None:
        if not (self.cost_margin > 0 and math.isfinite(self.cost_margin)):
            raise ValueError(f"cost_margin is {self.cost_margin!r}: expected a positive number")
        if not self.fair_within_s >= 0:
            raise ValueError(f"fair_within_s is {self.fair_within_s!r}: expected a number of at least 0")
        if not 0 <= self.returning_s < math.inf:
            raise ValueError(f"returning_s is {self.returning_s!r}: expected a number of at least 0")


class Reason(StrEnum):
    """Why a batch was dispatched as it was. Callers see it in ``X-Rowwise-Explain``."""

    #: Rule 2: its head had waited longest.
    OLDEST = "oldest"
    #: Rule 3: its deadline was the nearest, and the best bucket meets it.
    DEADLINE = "deadline"
    #: Rule 4: a quicker bucket than the best, to meet a deadline.
    RESCUE = "rescue"
    #: Rule 4: the best bucket, without the rows that it would have finished late.
    SHED = "shed"


@dataclass(frozen=True, slots=True)
class Dispatch(Generic[QueueT]):
    """Run rows of ``queue`` in ``bucket`` now. ``load`` is that of all queues, where the choice looked at it.

    Rows due before ``give_up_before_s`` are to be answered with an error first; minus infinity gives up none.
    """

    queue: QueueT
    bucket: int
    reason: Reason
    give_up_before_s: float = -math.inf
    load: float = field(default=0.0, compare=False)

    @property
    def by_deadline(self) -> bool:
        """True: rows leave the queue in order of their deadlines, not of their arrival."""
        return self.reason is not Reason.OLDEST


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """No executor is free. At ``wakeup_s`` the first waiting row can no longer be finished in time (or infinity)."""

    wakeup_s: float


@dataclass(frozen=True, slots=True)
class Idle:
    """No row waits."""


_IDLE = Idle()


def plan(
    queues: Collection[QueueT], policy: Policy, now_s: float, free_executors: int, *, n_executors: int = 1
) -> Dispatch[QueueT] | WaitUntil | Idle:
    """Decide what one free executor starts at ``now_s``. Same arguments, same decision.

    ``queues`` are those with waiting rows; among equals the first wins. Ask again for each free executor.
    ``n_executors``: free or not.
    """
    margin = policy.cost_margin
    if free_executors < 1:
        wakeup_s = min((queue.due_s - margin * queue.costs.quickest_s for queue in queues), default=None)
        return _IDLE if wakeup_s is None else WaitUntil(wakeup_s)
    if not queues:
        return _IDLE

    clear_s = load = 0.0
    least_s, most_s = math.inf, -math.inf
    oldest = urgent = next(iter(queues))
    for queue in queues:
        clear_s += queue.costs.clear_s(queue.n_rows)
        load += queue.load
        used_s = queue.share.used_s
        if used_s < least_s:
            least_s = used_s
        if used_s > most_s:
            most_s = used_s
        if queue.oldest_s < oldest.oldest_s:
            oldest = queue
        if queue.due_s < urgent.due_s:
            urgent = queue
    limit_s = least_s + policy.fair_within_s
    if most_s > limit_s:
        within = [queue for queue in queues if queue.share.used_s <= limit_s]
        oldest, urgent = min(within, key=_oldest_s), min(within, key=_due_s)
    if now_s + margin * clear_s <= urgent.due_s:
        load /= n_executors
        return Dispatch(oldest, oldest.costs.best(oldest.n_rows, load), Reason.OLDEST, load=load)
    return _nearest_deadline(urgent, margin, now_s)


def _oldest_s(queue: Waiting) -> float:
    return queue.oldest_s


def _due_s(queue: Waiting) -> float:
    return queue.due_s


def _nearest_deadline(queue: QueueT, margin: float, now_s: float) -> Dispatch[QueueT]:
    """Rules 3 and 4, for the queue with the nearest deadline."""
    costs, n_rows = queue.costs, queue.n_rows
    best = costs.best(n_rows)
    best_s = costs.cost(best)
    finish_s = now_s + margin * best_s
    if finish_s <= queue.due_s:
        return Dispatch(queue, best, Reason.DEADLINE)

    n_late = queue.rows_due_before(finish_s)
    quick = costs.best_within(n_rows, (queue.due_s - now_s) / margin)
    if quick is not None:
        row_s = best_s / min(best, n_rows)
        wasted_s = costs.cost(quick) - min(quick, n_rows) * row_s
        if n_late >= n_rows or min(quick, n_late) * row_s > wasted_s:
            return Dispatch(queue, quick, Reason.RESCUE)

    if n_late < n_rows:
        rest = costs.best(n_rows - n_late)
        if costs.cost(rest) < best_s:
            best, finish_s = rest, now_s + margin * costs.cost(rest)
    return Dispatch(queue, best, Reason.SHED, give_up_before_s=finish_s)
