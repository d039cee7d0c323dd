"""Who is refused at the door, and with which words.

An item is refused if more would wait than may, or if it can't be answered by its deadline. The second is a prediction:
what runs must end, what waits must run, each row at its group's best throughput, and the item's own rows; all of it at
the pace that work has lately taken (``pace``). It counts against an item only if the item is due after everything that
waits, since otherwise it could be served before some of it. A prediction needs room for what it can't know: an item
that is refused can be sent again, one that is admitted and late has cost everybody who waited behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from server.batching.backlog import Backlog
from server.batching.costs import CostTable
from server.batching.errors import (
    BatchingError,
    DeadlineExceeded,
    Draining,
    ModelUnloaded,
    Overloaded,
    QueueFull,
    QueueTimeout,
    TooManyRows,
)
from server.batching.items import Item
from server.batching.queue import Group, Quota
from server.errors import RowwiseError

__all__ = [
    "QueueLimits",
    "check_deadline",
    "give_up",
    "late",
    "refuse_closed",
    "refuse_full",
    "refuse_late",
    "refuse_overload",
    "submit_each",
]

_MIB = 2**20
#: An item that has to wait is admitted if its deadline leaves this times its predicted finish, and a batch more:
#: batches take longer than their measured cost now and then. With up to 30 % on a batch none is late of 70,000
#: (tests/batching/test_overload.py); with 5 % of room and no batch, 1 % of them are.
_ROOM = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Bounds on what may wait.

    ``max_rows`` and ``max_bytes``: most that waits in a group that names no quota of its own. A longer queue refuses
    less in a burst and makes everybody wait longer when the model is the limit.
    ``max_bytes_in_all``: most bytes that wait in all groups together: what bounds the server's memory.
    """

    max_rows: int = 4_096
    max_bytes: float = 256 * _MIB
    max_bytes_in_all: float = 512 * _MIB

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_bytes", "max_bytes_in_all"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: expected at least 1")


def refuse_closed(group: Group, *, is_draining: bool, backlog_s: float) -> BatchingError:
    """Say why nothing more is admitted to ``group``."""
    if is_draining:
        return Draining(
            f"{group.label}: the server is stopping and admits no more requests; send it to another server",
            retry_after_s=backlog_s,
        )
    return ModelUnloaded(f"{group.label} is being unloaded and admits no more requests; ask for another version")


def refuse_full(item: Item, quota: Quota, *, backlog_s: float) -> BatchingError:
    """Say that an item's rows don't fit."""
    label, n_rows, n_bytes = item.group.label, item.n_rows, item.n_rows * item.row_bytes
    if n_rows > quota.max_rows:
        return TooManyRows(
            f"{label}: the request has {n_rows:,} examples and the queue holds {quota.max_rows:,} at most; "
            "send it in several requests"
        )
    if n_bytes > quota.max_bytes:
        return TooManyRows(
            f"{label}: the request's examples have {n_bytes:,} bytes and the queue holds {quota.max_bytes:,} at most; "
            "send it in several requests"
        )
    if quota.n_rows + n_rows > quota.max_rows:
        waiting = f"{quota.n_rows:,} of at most {quota.max_rows:,} rows are waiting and the request has {n_rows:,}"
    else:
        waiting = f"{quota.n_bytes:,} of at most {quota.max_bytes:,} bytes are waiting and the request has {n_bytes:,}"
    return QueueFull(f"{label}: {waiting}; try again in {_duration(backlog_s)}", retry_after_s=backlog_s)


def refuse_overload(item: Item, n_bytes: int, max_bytes: float, *, backlog_s: float) -> BatchingError:
    """Say that ``n_bytes`` wait for all models together, and that an item's rows are too many more."""
    return Overloaded(
        f"{item.group.label}: {n_bytes:,} of at most {max_bytes:,.0f} bytes are waiting in the server and the request "
        f"has {item.n_rows * item.row_bytes:,}; try again in {_duration(backlog_s)}",
        retry_after_s=backlog_s,
    )


def check_deadline(
    item: Item, now_s: float, backlog: Backlog, *, running_s: float, seconds: float, pace: float
) -> None:
    """Raise if ``item`` can't be answered in time.

    Units: what runs takes ``running_s`` more; a second of measured cost takes ``seconds``, and ``pace`` times that now.
    Errors: DeadlineExceeded; QueueFull.
    """
    group, costs = item.group, item.group.costs
    others_s = backlog.work_s - group.n_rows * costs.row_s
    waiting_s = others_s + _run_s(costs, group.n_rows)
    with_own_s = others_s + _run_s(costs, group.n_rows + item.n_rows)
    is_due_last = item.due_s >= backlog.latest_due_s
    refusal = refuse_late(
        item,
        now_s=now_s,
        least_s=max(seconds * costs.quickest_s, item.n_rows * costs.row_s * seconds),
        ahead_s=running_s + pace * seconds * waiting_s,
        own_s=pace * seconds * (_ROOM * with_own_s - waiting_s + costs.slowest_s),
        is_due_last=is_due_last,
    )
    if refusal is not None:
        raise refusal
    if not is_due_last and not backlog.demand.admits(
        item,
        backlog.active,
        now_s,
        work_s=item.n_rows * costs.row_s,
        start_s=running_s + pace * seconds * costs.slowest_s,
        pace=_ROOM * pace * seconds,
    ):
        ahead_s = running_s + pace * seconds * waiting_s
        raise QueueFull(
            f"{group.label}: the deadline is in {_duration(item.due_s - now_s)}, and in time for it the request could "
            f"be executed only at the cost of others; try again in {_duration(ahead_s)}",
            retry_after_s=ahead_s,
        )


def _run_s(costs: CostTable, n_rows: int) -> float:
    """Return the seconds that so many waiting rows of a group take.

    Full batches, if it is more than one: what is left over fills up with rows that come meanwhile.
    """
    if n_rows <= costs.densest:
        return costs.clear_s(n_rows) if n_rows else 0.0
    return math.ceil(n_rows / costs.densest) * costs.cost(costs.densest)


def refuse_late(
    item: Item, *, now_s: float, least_s: float, ahead_s: float, own_s: float, is_due_last: bool
) -> BatchingError | None:
    """Say why ``item`` can't be answered by its deadline, or None if it should be.

    ``least_s`` is the least time that its rows take on an idle server; ``ahead_s`` is predicted to pass until what runs
    and waits has run, ``own_s`` until its own rows have too.
    """
    left_s = item.due_s - now_s
    label = item.group.label
    if left_s <= 0:
        return DeadlineExceeded(f"{label}: the deadline passed {_duration(-left_s)} before the request was queued")
    if left_s <= least_s:
        return DeadlineExceeded(
            f"{label}: the deadline is in {_duration(left_s)} and the request takes {_duration(least_s)}; "
            "allow it more time"
        )
    if is_due_last and ahead_s > 0 and left_s <= ahead_s + own_s:
        return QueueFull(
            f"{label}: the deadline is in {_duration(left_s)} and the requests ahead take "
            f"{_duration(ahead_s)}; try again in {_duration(ahead_s)}",
            retry_after_s=ahead_s,
        )
    return None


def give_up(item: Item, now_s: float, *, backlog_s: float) -> QueueTimeout:
    """Say that ``item`` was admitted, and waited until it was too late to run it."""
    return QueueTimeout(
        f"{item.group.label}: not executed, because after {_duration(now_s - item.arrived_s)} in the queue it "
        f"could no longer finish by its deadline; try again in {_duration(backlog_s)} or allow it more time",
        retry_after_s=backlog_s,
    )


def late(item: Item) -> DeadlineExceeded:
    """Say that the deadline of ``item`` passed while its rows ran."""
    allowed_s = item.due_s - item.arrived_s
    return DeadlineExceeded(
        f"{item.group.label}: the deadline passed while the request was executed, {_duration(allowed_s)} after it was "
        "queued; allow it more time"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1_000:.3g} ms"


def submit_each(items: Sequence[Item], submit: Callable[[Item], None]) -> list[tuple[Item, RowwiseError]]:
    """Submit items one by one, and return those that were refused, with the reason."""
    refused: list[tuple[Item, RowwiseError]] = []
    for item in items:
        # Nothing leaves the queue meanwhile: who needs no less room than one who was refused is refused too.
        if refused and item.n_rows >= refused[-1][0].n_rows and item.group.quarantine is None:
            refused.append((item, refused[-1][1]))
            continue
        try:
            submit(item)
        except RowwiseError as error:
            refused.append((item, error))
    return refused
