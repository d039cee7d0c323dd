"""Who is refused at the door, and with which words.

A refusal is made only when it is certain. A queue's estimate counts every waiting row at its group's best
throughput, which is the least work that can lie ahead; and it counts against an item's deadline only if the
item is due after everything that waits, since otherwise it could be served before some of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from server.batching.errors import BatchingError, DeadlineExceeded, Draining, ModelUnloaded, QueueFull, TooManyRows
from server.batching.items import Item
from server.batching.queue import Group, Quota

__all__ = ["QueueLimits", "give_up", "refuse_closed", "refuse_full", "refuse_late"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Bounds on what may wait.

    ``max_rows``: most rows that wait in a group that names no quota of its own. A longer queue refuses less in
    a burst and makes everybody wait longer when the model is the limit.
    """

    max_rows: int = 4_096

    def __post_init__(self) -> None:
        if self.max_rows < 1:
            raise ValueError(f"max_rows is {self.max_rows}: expected at least 1")


def refuse_closed(group: Group, *, is_draining: bool, backlog_s: float) -> BatchingError:
    """Say why nothing more is admitted to ``group``."""
    if is_draining:
        return Draining(
            f"{group.label}: the server is stopping and admits no more requests; send it to another server",
            retry_after_s=backlog_s,
        )
    return ModelUnloaded(f"{group.label} is being unloaded and admits no more requests; ask for another version")


def refuse_full(group: Group, quota: Quota, n_rows: int, *, backlog_s: float) -> BatchingError:
    """Say that ``n_rows`` more don't fit."""
    if n_rows > quota.max_rows:
        return TooManyRows(
            f"{group.label}: the request has {n_rows:,} examples and the queue holds {quota.max_rows:,} at most; "
            "send it in several requests"
        )
    return QueueFull(
        f"{group.label}: {quota.n_rows:,} of at most {quota.max_rows:,} rows are waiting and the request has "
        f"{n_rows:,}; try again in {_duration(backlog_s)}",
        retry_after_s=backlog_s,
    )


def refuse_late(
    item: Item, *, now_s: float, work_s: float, backlog_s: float, is_due_last: bool
) -> BatchingError | None:
    """Say why ``item`` can't be answered by its deadline, or None if it may be.

    ``work_s`` is the least time that its own rows take, ``backlog_s`` that of the rows that wait.
    """
    left_s = item.due_s - now_s
    label = item.group.label
    if left_s <= 0:
        return DeadlineExceeded(f"{label}: the deadline passed {_duration(-left_s)} before the request was queued")
    if left_s <= work_s:
        return DeadlineExceeded(
            f"{label}: the deadline is in {_duration(left_s)} and the request takes {_duration(work_s)}; "
            "allow it more time"
        )
    if is_due_last and left_s <= backlog_s + work_s:
        return QueueFull(
            f"{label}: the deadline is in {_duration(left_s)} and the requests ahead take "
            f"{_duration(backlog_s)}; try again in {_duration(backlog_s)}",
            retry_after_s=backlog_s,
        )
    return None


def give_up(item: Item, now_s: float) -> DeadlineExceeded:
    """Say that ``item`` was admitted, and waited until it was too late to run it."""
    return DeadlineExceeded(
        f"{item.group.label}: not executed, because after {_duration(now_s - item.arrived_s)} in the queue it "
        f"could no longer finish by its deadline; try again or allow it more time"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1_000:.3g} ms"
