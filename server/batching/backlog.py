"""All rows that wait, in whatever group: which groups have some, how much work they are, and when the first is late."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from server.batching.costs import CostTable
from server.batching.demand import Demand
from server.batching.items import Item
from server.batching.queue import Group
from server.batching.shares import Shares

__all__ = ["Backlog"]


class Backlog:
    """The sums over the queues of all groups. What changes a queue goes through here."""

    __slots__ = ("_margin", "active", "alarm_s", "demand", "latest_due_s", "n_bytes", "n_rows", "shares", "work_s")

    def __init__(self, *, cost_margin: float) -> None:
        self._margin = cost_margin
        #: The groups with waiting rows, in the order in which they got their first one.
        self.active: dict[Group, None] = {}
        #: Rows that wait, and their bytes.
        self.n_rows = 0
        self.n_bytes = 0
        #: Least seconds of execution that they need: each at its group's best throughput.
        self.work_s = 0.0
        #: At least the furthest deadline of a waiting item.
        self.latest_due_s = -math.inf
        #: At most the time at which the first waiting row can no longer be finished in time.
        self.alarm_s = math.inf
        #: What is due by when, where it matters.
        self.demand = Demand()
        #: Whose turn it is.
        self.shares = Shares()

    def push(self, item: Item) -> None:
        """Let an item's rows wait, from ``next_row`` on."""
        n_rows = item.n_rows - item.next_row
        self._enter(item.group, n_rows, n_rows * item.row_bytes, item.due_s)
        item.group.push(item)

    def push_all(self, items: Sequence[Item], n_rows: int, n_bytes: int) -> None:
        """Let new items of one group, due at one time, wait: so many rows and bytes in all."""
        group = items[0].group
        self._enter(group, n_rows, n_bytes, items[0].due_s)
        group.push_all(items, n_rows)

    def _enter(self, group: Group, n_rows: int, n_bytes: int, due_s: float) -> None:
        """Count rows that are about to wait in a group."""
        costs, quota = group.costs, group.quota
        assert quota is not None
        if not group.n_items:
            self.active[group] = None
        share = group.share
        if not share.n_waiting:
            self.shares.enter(share)
        share.n_waiting += n_rows
        quota.n_rows += n_rows
        quota.n_bytes += n_bytes
        self.n_rows += n_rows
        self.n_bytes += n_bytes
        self.work_s += n_rows * costs.row_s
        if due_s > self.latest_due_s:
            self.latest_due_s = due_s
        last_chance_s = due_s - self._margin * costs.quickest_s
        if last_chance_s < self.alarm_s:
            self.alarm_s = last_chance_s

    def left(self, group: Group, n_rows: int, n_bytes: int) -> None:
        """Account for rows that were taken from a group's queue."""
        assert group.quota is not None
        group.quota.n_rows -= n_rows
        group.quota.n_bytes -= n_bytes
        group.share.n_waiting -= n_rows
        self.n_rows -= n_rows
        self.n_bytes -= n_bytes
        self.work_s -= n_rows * group.costs.row_s
        if not group.n_items:
            del self.active[group]
            if not self.active:
                self.work_s = 0.0
                self.latest_due_s = -math.inf
                self.alarm_s = math.inf

    def recost(self, group: Group, costs: CostTable) -> None:
        """Count a group's rows at other costs from now on."""
        self.work_s += group.n_rows * (costs.row_s - group.costs.row_s)
        group.costs = costs

    def remove(self, item: Item) -> bool:
        """Take out what waits of an item. False: none of it waits."""
        n_rows = item.n_rows - item.next_row
        if not n_rows:
            return False
        item.group.drop(item)
        self.left(item.group, n_rows, n_rows * item.row_bytes)
        return True

    def late(self, now_s: float) -> Iterator[Item]:
        """Yield each waiting item that even its group's quickest bucket can't finish in time.

        Whoever asks has taken an item out before the next one is yielded.
        """
        alarm_s = math.inf
        for group in tuple(self.active):
            slack_s = self._margin * group.costs.quickest_s
            while group.due_s - slack_s <= now_s:
                yield group.first(by_deadline=True)
            alarm_s = min(alarm_s, group.due_s - slack_s)
        self.alarm_s = alarm_s
