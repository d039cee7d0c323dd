"""A group, and the rows of it that wait.

Rows of one priority wait in a ``Lane``. Nearly always there is one lane, and the group is no more than a name for it;
the others exist while rows of their priority wait. A batch takes from all lanes:

- By arrival: a level of priority is worth ``_LEVEL_S`` of waiting. The lane whose head came first, so corrected, is
  served first. A request overtakes what came a little earlier, and nobody is overtaken for ever.
- By deadline, which is how rows are taken when not all deadlines can be met: the highest priority first, so that it is
  the lower ones that are late.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain

from server.batching.arrivals import ArrivalRate
from server.batching.costs import CostTable
from server.batching.drift import CostDrift
from server.batching.items import PRIORITY, Item, Span
from server.batching.lane import Lane
from server.batching.quarantine import Quarantine
from server.batching.returning import Returning
from server.batching.shares import Share

__all__ = ["Group", "Quota"]

#: Seconds of waiting that a request of the next lower priority must be ahead to go first.
_LEVEL_S = 1.0


class Quota:
    """A bound on waiting rows and their bytes that several groups share: a model's groups hold one between them."""

    __slots__ = ("max_bytes", "max_rows", "n_bytes", "n_rows")

    def __init__(self, max_rows: int, max_bytes: float = math.inf) -> None:
        if max_rows < 1:
            raise ValueError(f"max_rows is {max_rows}: expected at least 1")
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}: expected at least 1")
        #: Most rows and bytes that may wait.
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        #: What waits in all groups together; written by the batcher.
        self.n_rows = 0
        self.n_bytes = 0


class Group:
    """Rows that may share a batch: one model version, entry point and padded shape.

    ``key`` tells groups apart in logs and metrics, ``label`` names the model in messages to callers. Without a
    ``quota`` the group gets one of its own from the batcher's limits, without a ``share`` one of its own of the
    executor's time, and without ``returning`` callers of its own. A group belongs to one batcher. ``home``: the group
    whose graphs run it, if it is another's quarantine.
    """

    __slots__ = (
        "_lane",
        "_lanes",
        "arrivals",
        "costs",
        "drift",
        "due_s",
        "home",
        "is_closed",
        "key",
        "label",
        "load",
        "n_items",
        "n_rows",
        "n_running",
        "oldest_s",
        "quarantine",
        "quota",
        "returning",
        "share",
    )

    def __init__(
        self,
        key: Hashable,
        costs: CostTable,
        *,
        label: str | None = None,
        quota: Quota | None = None,
        share: Share | None = None,
        returning: Returning | None = None,
        home: Group | None = None,
    ) -> None:
        self.key = key
        self.costs = costs
        self.label = str(key) if label is None else label
        self.quota = quota
        self.share = Share() if share is None else share
        #: Whose graphs run its batches; None: its own.
        self.home = home
        #: None until a row of it was found bad; made by the batcher.
        self.quarantine: Quarantine | None = None
        #: Rows and items that wait. An item with rows in a running batch counts while one of its rows waits.
        self.n_rows = 0
        self.n_items = 0
        #: Arrival of the item that is next by arrival, moved by its priority; infinity when none waits.
        self.oldest_s = math.inf
        #: The nearest deadline of a waiting item; infinity if none has one.
        self.due_s = math.inf
        #: Batches that run; written by the batcher, as is is_closed.
        self.n_running = 0
        #: How many rows a second come in; brought up to date by the batcher.
        self.arrivals = ArrivalRate(costs.cost(costs.buckets[-1]))
        self.returning = Returning() if returning is None else returning
        #: What has arrived lately, as a share of what one executor could run.
        self.load = 0.0
        #: True: nothing more is admitted.
        self.is_closed = False
        #: Follows the costs while batches run; None: they stay as they are.
        self.drift: CostDrift | None = None
        #: The lane of ordinary priority, and those of all priorities that wait, this one included.
        self._lane = Lane()
        self._lanes: dict[int, Lane] = {PRIORITY: self._lane}

    @property
    def queues(self) -> tuple[Group, ...]:
        """The group, and its quarantine if it has one."""
        return (self,) if self.quarantine is None else (self, self.quarantine.group)

    def observe(self, now_s: float, pace: float) -> None:
        """Bring ``load`` up to date. ``pace``: seconds that pass for each second of measured cost.

        Without it a server whose core reads and answers requests as well would never look busy, and split what waits
        as if nothing more were to come.
        """
        arrivals = self.arrivals
        arrivals.update(now_s)
        self.load = arrivals.rows_s * self.costs.row_s * pace

    def push(self, item: Item) -> None:
        """Add an item at the end; its rows from ``next_row`` on wait."""
        priority, n_rows = item.priority, item.n_rows - item.next_row
        lane = self._lane if priority == PRIORITY else self._lanes.setdefault(priority, Lane())
        lane.push(item)
        self.n_items += 1
        self.n_rows += n_rows
        self.arrivals.n_counted += n_rows
        if lane.due_s < self.due_s:
            self.due_s = lane.due_s
        if lane.n_items == 1:
            self.oldest_s = min(self.oldest_s, _head_s((priority, lane)))

    def push_all(self, items: Sequence[Item], n_rows: int) -> None:
        """Add new items of ordinary priority, due at one time, with so many rows in all."""
        lane = self._lane
        was_empty = not lane.n_items
        lane.push_all(items, n_rows)
        self.n_items += len(items)
        self.n_rows += n_rows
        self.arrivals.n_counted += n_rows
        if lane.due_s < self.due_s:
            self.due_s = lane.due_s
        if was_empty:
            self.oldest_s = min(self.oldest_s, lane.oldest_s)

    def waiting(self) -> Iterator[Item]:
        """Yield the items that wait, lane by lane."""
        return chain.from_iterable(lane.waiting() for lane in self._lanes.values())

    def take(self, max_rows: int, *, by_deadline: bool) -> list[Span]:
        """Take up to ``max_rows`` waiting rows, by arrival or by deadline; the last item may be split."""
        if len(self._lanes) == 1:
            spans = self._lane.take(max_rows, by_deadline=by_deadline)
        else:
            spans = self._take_from_all(max_rows, by_deadline=by_deadline)
        self._settle()
        return spans

    def first(self, *, by_deadline: bool = False) -> Item:
        """Return the waiting item that is next by arrival, or the one that is due first. There must be one."""
        if len(self._lanes) == 1:
            return self._lane.first(by_deadline=by_deadline)
        if by_deadline:
            lane = min(self._lanes.values(), key=lambda lane: (lane.due_s, not lane.n_items))
            return lane.first(by_deadline=True)
        return self._next_by_arrival().first()

    def drop(self, item: Item) -> int:
        """Take out a waiting item wherever it stands, and return how many rows of it had waited."""
        n_rows = self._lanes[item.priority].drop(item)
        self._settle()
        return n_rows

    def rows_due_before(self, limit_s: float) -> int:
        """Count the waiting rows whose deadline is before ``limit_s``, looking at hardly any others."""
        return sum(lane.rows_due_before(limit_s) for lane in self._lanes.values())

    def _take_from_all(self, max_rows: int, *, by_deadline: bool) -> list[Span]:
        spans: list[Span] = []
        room = max_rows
        if by_deadline:
            for _, lane in sorted(self._lanes.items()):
                before = lane.n_rows
                spans += lane.take(room, by_deadline=True)
                room -= before - lane.n_rows
            return spans
        while room and any(lane.n_rows for lane in self._lanes.values()):
            lane = self._next_by_arrival()
            item = lane.first()
            n_rows = min(room, item.n_rows - item.next_row)
            spans += lane.take(n_rows, by_deadline=False)
            room -= n_rows
        return spans

    def _next_by_arrival(self) -> Lane:
        return min(self._lanes.items(), key=_head_s)[1]

    def _settle(self) -> None:
        """Make the sums true again, and let go of lanes that are empty."""
        lanes = self._lanes
        if len(lanes) == 1:
            lane = self._lane
            self.n_rows, self.n_items, self.oldest_s, self.due_s = lane.n_rows, lane.n_items, lane.oldest_s, lane.due_s
            return
        for priority in [priority for priority, lane in lanes.items() if not lane.n_items and lane is not self._lane]:
            del lanes[priority]
        self.n_rows = sum(lane.n_rows for lane in lanes.values())
        self.n_items = sum(lane.n_items for lane in lanes.values())
        self.oldest_s = min(map(_head_s, lanes.items()))
        self.due_s = min(lane.due_s for lane in lanes.values())


def _head_s(entry: tuple[int, Lane]) -> float:
    """When the first item of a lane arrived, moved by its priority."""
    priority, lane = entry
    return lane.oldest_s + (priority - PRIORITY) * _LEVEL_S
