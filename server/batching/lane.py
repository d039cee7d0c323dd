"""Waiting items of one group and priority, by arrival and by deadline.

Items stand in one deque, in order of arrival. As long as deadlines come in the same order, which they do when
all requests have the same timeout, the head is also the most urgent item and nothing else is kept. The first
item that is due before one that arrived earlier makes the lane *mixed*: from then until it is empty a heap by
deadline stands beside the deque. An item leaves the structure it was not taken from lazily: once no row of it
waits (``next_row == n_rows``) it is skipped, and swept out when more than half of the entries are such.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from server.batching.items import Item, Span

__all__ = ["Lane"]

#: Fewer skipped entries than this are not worth a sweep.
_SWEEP_FROM = 64


class Lane:
    """A queue of items whose first entry, by arrival and by deadline, always waits."""

    __slots__ = ("_heap", "_items", "_latest_due_s", "_sequence", "due_s", "n_items", "n_rows", "oldest_s")

    def __init__(self) -> None:
        #: Rows and items that wait. An item with rows in a running batch counts while one of its rows waits.
        self.n_rows = 0
        self.n_items = 0
        #: Arrival of the first waiting item, and the nearest deadline of any; infinity when none waits.
        self.oldest_s = math.inf
        self.due_s = math.inf
        #: Every waiting item, by arrival; entries whose ``next_row`` is ``n_rows`` are to be skipped, except that
        #: the first entry always waits.
        self._items: deque[Item] = deque()
        #: Every waiting item by deadline if the lane is mixed, else None. The first entry always waits.
        self._heap: list[tuple[float, int, Item]] | None = None
        self._sequence = count()
        #: The furthest deadline pushed since the lane was empty.
        self._latest_due_s = -math.inf

    def push(self, item: Item) -> None:
        """Add an item at the end; its rows from ``next_row`` on wait."""
        due_s = item.due_s
        if not self.n_items:
            self.oldest_s = item.arrived_s
            self.due_s = due_s
            self._latest_due_s = due_s
        elif due_s >= self._latest_due_s:
            self._latest_due_s = due_s
        elif self._heap is None:
            self._heap = [(waiting.due_s, next(self._sequence), waiting) for waiting in self._items]
            heapify(self._heap)
        self._items.append(item)
        if self._heap is not None:
            heappush(self._heap, (due_s, next(self._sequence), item))
            if len(self._heap) + len(self._items) > 2 * (_SWEEP_FROM + 2 * self.n_items):
                self._sweep()
        if due_s < self.due_s:
            self.due_s = due_s
        self.n_items += 1
        self.n_rows += item.n_rows - item.next_row

    def push_all(self, items: Sequence[Item], n_rows: int) -> None:
        """Add new items that are due at one time and have so many rows in all."""
        due_s = items[0].due_s
        if self._heap is not None or (self.n_items and due_s < self._latest_due_s):
            for item in items:
                self.push(item)
            return
        if not self.n_items:
            self.oldest_s = items[0].arrived_s
            self.due_s = due_s
        self._latest_due_s = due_s
        self._items.extend(items)
        self.n_items += len(items)
        self.n_rows += n_rows

    def waiting(self) -> Iterator[Item]:
        """Yield the items that wait, by arrival."""
        return (item for item in self._items if item.next_row < item.n_rows)

    def take(self, max_rows: int, *, by_deadline: bool) -> list[Span]:
        """Take up to ``max_rows`` waiting rows, by arrival or by deadline; the last item may be split."""
        spans: list[Span] = []
        room = max_rows
        items = self._items
        heap = self._heap if by_deadline else None
        while room and self.n_items:
            item = items[0] if heap is None else heap[0][2]
            start, stop = item.next_row, item.n_rows
            if stop - start > room:
                stop = start + room
            else:
                if heap is None:
                    items.popleft()
                else:
                    heappop(heap)
                if start == stop:
                    continue
                self.n_items -= 1
            item.next_row = stop
            room -= stop - start
            spans.append((item, start, stop))
        self.n_rows -= max_rows - room
        self._settle()
        return spans

    def first(self, *, by_deadline: bool = False) -> Item:
        """Return the waiting item that arrived first, or the one that is due first. There must be one."""
        return self._heap[0][2] if by_deadline and self._heap is not None else self._items[0]

    def drop(self, item: Item) -> int:
        """Take out a waiting item wherever it stands, and return how many rows of it had waited."""
        n_rows = item.n_rows - item.next_row
        item.next_row = item.n_rows
        self.n_rows -= n_rows
        self.n_items -= 1
        self._settle()
        if len(self._items) - self.n_items > _SWEEP_FROM + self.n_items:
            self._sweep()
        return n_rows

    def rows_due_before(self, limit_s: float) -> int:
        """Count the waiting rows whose deadline is before ``limit_s``, looking at hardly any others."""
        n_rows = 0
        if self._heap is None:
            for item in self._items:
                if item.due_s >= limit_s:
                    break
                n_rows += item.n_rows - item.next_row
            return n_rows
        heap, ahead = self._heap, [0]
        while ahead:
            index = ahead.pop()
            if index < len(heap) and heap[index][0] < limit_s:
                n_rows += heap[index][2].n_rows - heap[index][2].next_row
                ahead += (2 * index + 1, 2 * index + 2)
        return n_rows

    def _settle(self) -> None:
        """Make the first entries waiting ones again, and ``oldest_s`` and ``due_s`` true."""
        items = self._items
        if not self.n_items:
            items.clear()
            self._heap = None
            self.oldest_s = self.due_s = math.inf
            return
        while items[0].next_row == items[0].n_rows:
            items.popleft()
        self.oldest_s = items[0].arrived_s
        heap = self._heap
        if heap is None:
            self.due_s = items[0].due_s
            return
        while heap[0][2].next_row == heap[0][2].n_rows:
            heappop(heap)
        self.due_s = heap[0][0]

    def _sweep(self) -> None:
        """Let go of the entries that no longer wait, so that they don't keep their payloads alive."""
        self._items = deque(item for item in self._items if item.next_row < item.n_rows)
        if self._heap is not None:
            self._heap = [entry for entry in self._heap if entry[2].next_row < entry[2].n_rows]
            heapify(self._heap)
