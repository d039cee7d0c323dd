"""Callers who were answered a moment ago and are about to ask again: when a batch waits for them.

Theory of operation
-------------------
Most clients ask again as soon as they have their answer. Served as they come, ``n`` of them soon form two halves that
take turns: one waits while the other is executed. Were the first half to wait until the second is back, both would
share a batch from then on. With ``d`` seconds between an answer and the next request of its caller, a round of all
takes ``cost(n) + d`` instead of ``2 cost(n / 2)``: everybody is served sooner, and the server does less, as long as
``d`` is less than the difference. So that difference, what sharing a batch saves, is how long it pays to wait.

Whether callers do return is seen. A wait in vain makes the next ones rarer, twice as rare each time, down to one chance
in ``_RAREST``; one that was worth it takes back a single step. So where half of the waits end well by accident, as they
may among requests that come on their own account, hardly any are made; and a caller who is alone never waits, since
nobody else was answered.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from server.batching.costs import CostTable

if TYPE_CHECKING:
    from server.batching.queue import Group

__all__ = ["ReturnWaits", "Returning", "saved_s"]

#: Waits are as rare as one in so many chances.
_RAREST = 64
#: A wait was worth it if at most one of so many rows was missing at its end.
_MOST_OF = 4
#: Who has not come back after so many seconds is not waited for.
_STALE_S = 50e-3
#: Seconds in which an answer is written and its caller asks again, with others in line: a wait that is shorter would
#: end while the answers are still being written.
_ANSWER_S = 50e-6


class Returning:
    """The rows of a model that were answered and whose callers have not asked again yet.

    Whoever knows callers says who has come back: rows of others, which waited in a socket meanwhile, are none of these.
    """

    __slots__ = ("_answered_s", "_began_s", "_n_at_first", "_one_in", "_passed", "_until_s", "n_rows")

    def __init__(self) -> None:
        #: Rows that are expected back.
        self.n_rows = 0
        self._answered_s = -math.inf
        #: A wait is begun at one of so many chances; those passed since the last one.
        self._one_in = 1
        self._passed = 0
        #: Until when a batch waits, and how many rows were expected when it began to; minus infinity: none waits.
        self._until_s = -math.inf
        self._n_at_first = 0
        #: When the first wait since the last batch began; infinity: none has.
        self._began_s = math.inf

    def answered(self, n_rows: int, now_s: float) -> None:
        """Expect so many rows back."""
        self.n_rows = n_rows if now_s - self._answered_s > _STALE_S else self.n_rows + n_rows
        self._answered_s = now_s

    def came(self, n_rows: int) -> None:
        """Note that who was answered so many rows has asked again, or is gone."""
        self.n_rows = max(0, self.n_rows - n_rows)
        if not self.n_rows and self._until_s > -math.inf:
            self._end()

    def wait_until_s(self, now_s: float, patience_s: float) -> float:
        """Return until when a batch that could be started is to wait; minus infinity if it is not.

        ``patience_s``: how long it pays to. Each call that may begin a wait is a chance.
        """
        if self._until_s > -math.inf:
            if now_s >= self._until_s:
                self._end()
            elif patience_s > 0.0:
                return self._until_s
            else:
                self._until_s = -math.inf  # those who came fill a batch
        elif self.n_rows and patience_s > 0.0:
            self._passed += 1
            if now_s - self._answered_s <= _STALE_S and self._passed >= self._one_in:
                self._passed = 0
                self._n_at_first = self.n_rows
                self._until_s = now_s + patience_s
                self._began_s = min(self._began_s, now_s)
                return self._until_s
        return -math.inf

    def dispatched(self, now_s: float) -> float:
        """Note that a batch runs, and return for how many seconds it has waited for others.

        Who is not trusted to come back is no longer expected.
        """
        held_s, self._began_s = max(0.0, now_s - self._began_s), math.inf
        self._until_s = -math.inf
        if self._one_in > 1:
            self.n_rows = 0
        return held_s

    def _end(self) -> None:
        self._until_s = -math.inf
        if _MOST_OF * self.n_rows <= self._n_at_first:
            self._one_in = max(1, self._one_in - 1)
        else:
            self._one_in = min(_RAREST, 2 * self._one_in)
        self.n_rows = 0


class ReturnWaits:
    """Decides for how long a batch waits. ``longest_s``: at most so many seconds; 0: not at all."""

    __slots__ = ("_cost_margin", "_longest_s", "until_s")

    def __init__(self, *, longest_s: float, cost_margin: float) -> None:
        self._longest_s = longest_s
        self._cost_margin = cost_margin
        #: When to look again whether rows still wait for others; infinity: none do.
        self.until_s = math.inf

    def awaits(self, group: Group, n_coming: int, now_s: float, *, pace: float) -> bool:
        """Return whether the rows of a group, and ``n_coming`` more, had better wait for those who return.

        ``pace``: seconds that pass for each second of measured cost.
        """
        returning, costs = group.returning, group.costs
        patience_s = pace * saved_s(costs, group.n_rows + n_coming, returning.n_rows)
        if patience_s > 0.0:
            patience_s = min(self._longest_s, patience_s + _ANSWER_S * returning.n_rows)
        until_s = returning.wait_until_s(now_s, patience_s)
        if not now_s < until_s < group.due_s - self._cost_margin * costs.slowest_s:
            return False
        if group.n_rows:
            self.until_s = until_s
        return True


def saved_s(costs: CostTable, n_here: int, n_returning: int) -> float:
    """Return the seconds of execution that are saved if rows that are here and some that return share batches."""
    apart_s = _clear_s(costs, n_here) + _clear_s(costs, n_returning)
    return apart_s - _clear_s(costs, n_here + n_returning)


def _clear_s(costs: CostTable, n_rows: int) -> float:
    """Return the seconds that the batches of so many rows take if nobody else comes."""
    total_s = 0.0
    while n_rows > 0:
        bucket = costs.best(n_rows)
        total_s += costs.cost(bucket)
        n_rows -= bucket
    return total_s
