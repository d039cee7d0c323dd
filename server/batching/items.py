"""What passes through the core: items come in, batches go to the executor, parts say where rows ran.

These are the objects of the hot path: mutable, slotted, made once for each request or batch, and without
behaviour. The batcher and the group's queue write their fields; everybody else reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.batching.queue import Group
    from server.errors import RowwiseError

__all__ = ["PRIORITY", "Batch", "Item", "Part", "Span", "totals"]

#: Priority of an item that names none; a lower number goes first.
PRIORITY = 5

#: Rows ``start`` up to ``stop`` of an item, inside a batch.
Span = tuple["Item", int, int]


class Item:
    """One request's rows of one group.

    ``payload`` is the caller's own, as is ``tag``; the core never looks at them. Where there is a tag, somebody tells
    when the sender is back after the answer (``returning``). Several items may share a payload, whose row ``first`` is
    then this item's row 0. For each row that waits, ``row_bytes`` are counted. ``caller`` is who sent it, as far as the
    surroundings can tell; None is nobody in particular. Times are readings of the batcher's clock, in seconds;
    ``deadline_s`` None means that the item may wait as long as it takes. Of two items the one with the lower
    ``priority`` goes first, within the bounds that ``queue`` tells.
    ``on_done`` is called exactly once for an admitted item, on the thread that drives the batcher. By then
    ``error`` is set, or ``parts`` cover the rows from 0 to ``n_rows`` in order.
    """

    __slots__ = (
        "arrived_s",
        "caller",
        "deadline_s",
        "due_s",
        "error",
        "first",
        "group",
        "is_done",
        "n_rows",
        "n_unfinished",
        "next_row",
        "on_done",
        "parts",
        "payload",
        "priority",
        "reruns",
        "row_bytes",
        "tag",
    )

    def __init__(
        self,
        group: Group,
        n_rows: int,
        payload: object,
        *,
        arrived_s: float,
        deadline_s: float | None,
        on_done: Callable[[Item], None],
        priority: int = PRIORITY,
        caller: Hashable | None = None,
        row_bytes: int = 0,
        first: int = 0,
        tag: object = None,
    ) -> None:
        self.group = group
        self.n_rows = n_rows
        self.payload = payload
        self.first = first
        self.tag = tag
        self.arrived_s = arrived_s
        self.deadline_s = deadline_s
        self.on_done = on_done
        self.priority = priority
        self.caller = caller
        self.row_bytes = row_bytes
        #: ``deadline_s``, or infinity.
        self.due_s = math.inf if deadline_s is None else deadline_s
        #: First row that no batch has taken. ``n_rows`` when no row waits; written by the group's queue.
        self.next_row = 0
        #: Rows whose result has not come. 0 exactly when the item has its whole result; written by the batcher.
        self.n_unfinished = n_rows
        #: True from just before ``on_done`` is called. A done item has no waiting rows.
        self.is_done = False
        #: Why there is no result; set before ``is_done``.
        self.error: RowwiseError | None = None
        #: Where the rows ran, in row order once ``is_done``; some parts may be there beside an error.
        self.parts: list[Part] = []
        #: Items that stand for rows of this one which are to be run again; written by the batcher.
        self.reruns: tuple[Item, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether rows of it wait, for the first time or to run again."""
        return self.next_row < self.n_rows or any(rerun.waits for rerun in self.reruns)


class Part:
    """Rows ``start`` up to ``stop`` of an item, which ran as rows ``offset`` onwards of ``batch``.

    ``outputs`` is what the executor returned for the whole batch; the core never looks at it.
    """

    __slots__ = ("batch", "offset", "outputs", "start", "stop")

    def __init__(self, batch: Batch, outputs: object, offset: int, start: int, stop: int) -> None:
        self.batch = batch
        self.outputs = outputs
        self.offset = offset
        self.start = start
        self.stop = stop


class Batch:
    """Rows of one group that run in one call of one bucket.

    ``id`` counts up from 1; ``n_rows`` is at most ``bucket``; ``reason`` is the planner's; times are seconds.
    """

    __slots__ = (
        "bucket",
        "dispatched_s",
        "due_s",
        "executed_s",
        "finished_s",
        "graph_s",
        "group",
        "held_s",
        "id",
        "load",
        "n_returning",
        "n_rows",
        "n_waiting",
        "predicted_s",
        "reason",
        "spans",
        "staged_s",
    )

    def __init__(
        self,
        batch_id: int,
        group: Group,
        bucket: int,
        spans: list[Span],
        *,
        n_rows: int,
        reason: str,
        dispatched_s: float,
        predicted_s: float,
        n_waiting: int = 0,
        load: float = 0.0,
        due_s: float = math.inf,
        n_returning: int = 0,
    ) -> None:
        self.id = batch_id
        self.group = group
        self.bucket = bucket
        #: Whose rows it holds, in row order of the batch. Empty once their items were told: an item leads to
        #: its batches through its parts, and a way back would keep outputs alive until the cycle collector runs.
        self.spans = spans
        self.n_rows = n_rows
        #: Rows of the group that waited when it was planned, its own among them.
        self.n_waiting = n_waiting
        #: Rows whose senders' return is told.
        self.n_returning = n_returning
        #: What arrived then, as a share of the best throughput.
        self.load = load
        self.reason = reason
        self.dispatched_s = dispatched_s
        #: Measured cost of the bucket, seconds.
        self.predicted_s = predicted_s
        #: Seconds for which it waited, though it could have run, for callers who were just answered.
        self.held_s = 0.0
        #: At most the nearest deadline of an item in it that is not done.
        self.due_s = due_s
        #: NaN while it runs.
        self.finished_s = math.nan
        #: Seconds of its execution alone, without handing it over and back; NaN: the executor can't tell.
        self.executed_s = math.nan
        #: Seconds of gathering its rows, and of its graph alone; NaN: the executor can't tell. For statistics only.
        self.staged_s = math.nan
        self.graph_s = math.nan

    @property
    def n_padding(self) -> int:
        """Rows of the bucket that no item filled."""
        return self.bucket - self.n_rows


def totals(spans: Sequence[Span]) -> tuple[int, int, int, float]:
    """Return how many rows they are, their bytes, the rows whose senders' return is told, and the nearest deadline."""
    n_rows = n_bytes = n_returning = 0
    due_s = math.inf
    for item, start, stop in spans:
        n_rows += stop - start
        if item.tag is not None:
            n_returning += stop - start
        n_bytes += (stop - start) * item.row_bytes
        if item.due_s < due_s:
            due_s = item.due_s
    return n_rows, n_bytes, n_returning, due_s
