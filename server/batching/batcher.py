"""Admission, dispatch and delivery: the shell around ``plan``.

One thread drives a batcher: every method is called on it, and every callback runs on it. Time comes from
``clock``, work goes to ``executor``, and ``defer`` runs a function once the current event-loop tick is over, so
that all requests of one tick are planned for together.

What always holds between calls:

- An admitted item is in exactly one place: rows wait in its group's queue, or run in batches, or it is done.
- A bad row is looked for by the executor (``isolate``). What it leaves unsettled waits in the group's quarantine, as
  does what callers send who keep sending bad rows.
- ``on_done`` runs after the batcher's own state is true again, so that it may call any method here.
- A free executor is given its next batch before the answers of the last one are delivered, so that it works
  while answers are encoded.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

from server.batching import admission
from server.batching.admission import QueueLimits
from server.batching.backlog import Backlog
from server.batching.costs import CostTable
from server.batching.delivery import Delivery, failures
from server.batching.errors import Cancelled
from server.batching.idleness import Idleness
from server.batching.interfaces import Executor, Observer
from server.batching.isolate import RowErrors
from server.batching.items import Batch, Item, totals
from server.batching.observing import GuardedObserver, NullObserver
from server.batching.pace import Pace
from server.batching.plan import Dispatch, Policy, WaitUntil, plan
from server.batching.queue import Group, Quota
from server.batching.returning import ReturnWaits
from server.batching.running import Running
from server.errors import RowwiseError

__all__ = ["Batcher"]

_log = logging.getLogger(__name__)

#: A deadline further away than this times the predicted finish is not looked at when an item is admitted.
_NEAR = 2.5


class Batcher:
    """Queues items of any number of groups and runs them in batches on one executor."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        executor: Executor,
        defer: Callable[[Callable[[], None]], None],
        limits: QueueLimits,
        observer: Observer | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._clock = clock
        self._executor = executor
        self._defer = defer
        self._limits = limits
        self._observer: Observer = NullObserver() if observer is None else GuardedObserver(observer)
        self._policy = Policy() if policy is None else policy
        self._waits = ReturnWaits(longest_s=self._policy.returning_s, cost_margin=self._policy.cost_margin)
        self._backlog = Backlog(cost_margin=self._policy.cost_margin)
        self._delivery = Delivery(self._backlog, self._observer, enqueue=self._enqueue)
        self._running = Running()
        self._pace = Pace()
        self._n_batches = 0
        #: True while a poll is arranged for the end of the tick; while poll's loop runs.
        self._poll_is_due = self._is_polling = False
        #: Every call that may answer items is inside of it, so that idleness is reported after the last answer.
        self._call = Idleness()
        self._is_draining = False

    @property
    def n_waiting(self) -> int:
        """Rows that no batch has taken yet."""
        return self._backlog.n_rows

    @property
    def n_bytes_waiting(self) -> int:
        """Bytes of the rows that no batch has taken yet."""
        return self._backlog.n_bytes

    @property
    def n_running(self) -> int:
        """Batches that were started and have not finished."""
        return len(self._running)

    @property
    def n_rows(self) -> int:
        """Rows that were admitted and are not answered: they wait, or are in a batch that runs."""
        return self._backlog.n_rows + self._running.n_rows

    @property
    def backlog_s(self) -> float:
        """Seconds in which the waiting rows could be executed at the best measured throughput."""
        return self._backlog.work_s / self._n_executors()

    @property
    def clear_s(self) -> float:
        """Seconds in which what waits now should have run, at the pace that work has taken lately."""
        return self._pace.seconds * self.backlog_s

    @property
    def free_in_s(self) -> float:
        """Seconds until a batch can begin, by the measured costs of those that run; 0: at once."""
        return 0.0 if self._executor.free() else max(0.0, self._running.first_until_s - self._clock())

    def submit(self, item: Item) -> None:
        """Admit an item and arrange for a poll at the end of the tick.

        Errors: QueueFull, TooManyRows, Overloaded, DeadlineExceeded, Draining, ModelUnloaded. ``on_done`` is then not
            called.
        """
        group, now_s = item.group, self._clock()
        assert item.n_rows > 0, "an item has at least one row"
        if group.quarantine is not None and group.quarantine.holds(item.caller, now_s):
            item.group = group.quarantine.group
        self._judge(item, now_s)
        self._backlog.push(item)
        self._poll_soon()

    def _judge(self, item: Item, now_s: float) -> None:
        """Raise what ``submit`` does of an item that may not wait."""
        group, n_rows = item.group, item.n_rows
        costs, quota, n_bytes = group.costs, group.quota, n_rows * item.row_bytes
        if quota is None:
            quota = group.quota = Quota(self._limits.max_rows, self._limits.max_bytes)
        if self._is_draining or group.is_closed:
            raise admission.refuse_closed(group, is_draining=self._is_draining, backlog_s=self.clear_s)
        if quota.n_rows + n_rows > quota.max_rows or quota.n_bytes + n_bytes > quota.max_bytes:
            raise admission.refuse_full(item, quota, backlog_s=self.clear_s)
        backlog = self._backlog
        if backlog.n_bytes + n_bytes > self._limits.max_bytes_in_all:
            raise admission.refuse_overload(
                item, backlog.n_bytes, self._limits.max_bytes_in_all, backlog_s=self.clear_s
            )
        soon_s = _NEAR * self._pace.seconds * (backlog.work_s + n_rows * costs.row_s + costs.slowest_s)
        if item.due_s - now_s <= soon_s or item.due_s - self._running.until_s <= soon_s:
            running_s = 0.0 if self._executor.free() else max(0.0, self._running.until_s - now_s)
            seconds = self._policy.cost_margin / self._n_executors()
            admission.check_deadline(
                item, now_s, backlog, running_s=running_s, seconds=seconds, pace=self._pace.seconds
            )

    def refusal(self, item: Item) -> RowwiseError | None:
        """Return what ``submit`` would raise now. The item is not admitted by asking."""
        try:
            self._judge(item, self._clock())
        except RowwiseError as error:
            return error
        return None

    def submit_all(self, items: Sequence[Item]) -> list[tuple[Item, RowwiseError]]:
        """Admit new items of one group that are due at one time, and return those that were refused, with the reason.

        As ``submit`` of each, at the price of one where there is room for all of them and time enough.
        """
        group, now_s = items[0].group, self._clock()
        n_rows = sum(item.n_rows for item in items)
        n_bytes = sum(item.n_rows * item.row_bytes for item in items)
        backlog, quota, due_s = self._backlog, group.quota, items[0].due_s
        soon_s = _NEAR * self._pace.seconds * (backlog.work_s + n_rows * group.costs.row_s + group.costs.slowest_s)
        if (
            quota is None
            or self._is_draining
            or group.is_closed
            or group.quarantine is not None
            or quota.n_rows + n_rows > quota.max_rows
            or quota.n_bytes + n_bytes > quota.max_bytes
            or backlog.n_bytes + n_bytes > self._limits.max_bytes_in_all
            or due_s - max(now_s, self._running.until_s) <= soon_s
        ):
            return admission.submit_each(items, self.submit)
        backlog.push_all(items, n_rows, n_bytes)
        self._poll_soon()
        return []

    def _enqueue(self, item: Item) -> None:
        """Let an item's rows wait, and arrange for a poll."""
        self._backlog.push(item)
        self._poll_soon()

    def _poll_soon(self) -> None:
        if not self._poll_is_due:
            self._poll_is_due = True
            self._defer(self._end_of_tick)

    def cancel(self, item: Item) -> bool:
        """Take an item back; none of its rows is executed from now on.

        True: it was still waiting, or a part of it was, and has ended with Cancelled (rows that run already are
        let run, for nobody). False: all of its rows run, or it is done; ``on_done`` comes or came as usual.
        """
        if not item.waits:
            return False
        with self._call:
            self._delivery.drop(item, Cancelled("the request was cancelled before it was executed"))
            self._delivery.answer(item)
        return True

    def poll(self) -> None:
        """Start a batch on every free executor while rows wait. Harmless at any time."""
        if self._is_polling:
            return
        self._is_polling = True
        self._waits.until_s = math.inf
        try:
            with self._call:
                while self._backlog.active and self._poll_once():
                    pass
        finally:
            self._is_polling = False

    def finished(self, batch: Batch, outputs: object, error: BaseException | None) -> None:
        """Deliver a batch that the executor has run: ``outputs``, or the ``error`` that it raised.

        RowErrors come with outputs: the items of the rows that it names fail, the others are delivered.
        """
        self._running.remove(batch)
        now_s = batch.finished_s = self._clock()
        group, took_s = batch.group, now_s - batch.dispatched_s
        group.n_running -= 1
        group.share.used_s += took_s - batch.predicted_s
        if error is None and group.drift is not None and not math.isnan(batch.executed_s):
            group.drift.ran(batch.bucket, batch.executed_s)
        self._pace.ran(
            predicted_s=batch.predicted_s,
            dispatched_s=batch.dispatched_s,
            finished_s=now_s,
            is_busy=self._backlog.n_rows > 0,
        )
        if batch.n_returning:
            group.returning.answered(batch.n_returning, now_s)
        with self._call:
            ended = self._delivery.end_late(batch, now_s) if batch.due_s <= now_s else []
            if error is not None:
                ended += [item for item, reason in failures(batch, error) if self._delivery.end(item, reason)]
            try:
                self.poll()
            finally:
                self._observer.finished(batch, error)
                if error is None or isinstance(error, RowErrors):
                    self._delivery.deliver(batch, outputs, error)
                for item in ended:
                    self._delivery.answer(item)
                batch.spans = []

    def next_wakeup_s(self) -> float | None:
        """Return when ``expire`` is to be called next, by the batcher's clock; None if nothing has a deadline.

        It is never later than the moment at which a waiting item can no longer be finished in time, or the deadline of
        one that runs. It may be earlier: calling ``expire`` then does nothing but bring this up to date.
        """
        alarm_s = min(self._backlog.alarm_s, self._running.due_s, self._waits.until_s)
        return None if alarm_s == math.inf else alarm_s

    def expire(self) -> None:
        """Answer the waiting items that can no longer be finished in time, and those that run past their deadline."""
        with self._call:
            now_s = self._clock()
            ended = self._drop_late(now_s) if now_s >= self._backlog.alarm_s else []
            if now_s >= self._running.due_s:
                ended += [
                    item for item in self._running.late_items(now_s) if self._delivery.end(item, admission.late(item))
                ]
            for item in ended:
                self._delivery.answer(item)
            if now_s >= self._waits.until_s:
                self.poll()

    def awaits(self, group: Group, n_coming: int) -> bool:
        """Return whether rows of ``group`` would wait for callers who return, were ``n_coming`` more admitted now."""
        is_idle = not self._running and not self._is_draining and self._executor.free() > 0
        if not group.returning.n_rows or not is_idle or any(other is not group for other in self._backlog.active):
            return False
        return self._waits.awaits(group, n_coming, self._clock(), pace=self._pace.seconds)

    def drain(self, on_drained: Callable[[], None] | None = None) -> None:
        """Stop admitting; what waits and runs is finished. ``on_drained`` is called once all of it is answered."""
        with self._call:
            self._is_draining = True
            if on_drained is not None:
                self._call.watch(lambda: not self._backlog.n_rows and not self._running, on_drained)

    def close_group(
        self, group: Group, error: RowwiseError | None = None, *, on_idle: Callable[[], None] | None = None
    ) -> None:
        """Stop admitting to ``group``. Its waiting items end with ``error``, or run first if there is none.

        ``on_idle`` is called once no row of the group waits or runs and all of its items are answered; after
        that the model can be unloaded.
        """
        with self._call:
            for closing in group.queues:
                closing.is_closed = True

            def report() -> None:
                group.quarantine = None
                if on_idle is not None:
                    on_idle()

            self._call.watch(lambda: not any(queue.n_items or queue.n_running for queue in group.queues), report)
            if error is not None:
                ended = []
                for closing in group.queues:
                    while closing.n_items:
                        ended.append(self._delivery.drop(closing.first(), error))
                for item in ended:
                    self._delivery.answer(item)

    def recost(self, group: Group, costs: CostTable) -> None:
        """Plan with other costs of the same buckets from now on."""
        with self._call:
            for queue in group.queues:
                self._backlog.recost(queue, costs)
            if group.drift is not None:
                group.drift.adopted()
            for item in self._drop_late(self._clock()):
                self._delivery.answer(item)

    def _n_executors(self) -> int:
        return max(1, self._executor.free() + len(self._running))

    def _end_of_tick(self) -> None:
        self._poll_is_due = False
        self.poll()

    def _poll_once(self) -> bool:
        """Carry out one decision of the planner. False: nothing to start now."""
        now_s = self._clock()
        backlog = self._backlog
        late = self._drop_late(now_s) if now_s >= backlog.alarm_s else []
        for group in backlog.active:
            group.observe(now_s, self._pace.seconds)
        n_free = self._executor.free()
        waits = len(backlog.active) == 1 and self.awaits(group, 0)
        n_executors = max(1, n_free + len(self._running))
        decision = None if waits else plan(backlog.active, self._policy, now_s, n_free, n_executors=n_executors)
        if isinstance(decision, Dispatch):
            group = decision.queue
            while group.due_s < decision.give_up_before_s:
                late.append(self._give_up(group.first(by_deadline=True), now_s))
            if group.n_items:
                self._start(decision, now_s)
        elif isinstance(decision, WaitUntil):
            self._backlog.alarm_s = decision.wakeup_s
        for item in late:
            self._delivery.answer(item)
        return isinstance(decision, Dispatch)

    def _start(self, decision: Dispatch[Group], now_s: float) -> None:
        group, bucket = decision.queue, decision.bucket
        n_before = group.n_rows
        spans = group.take(bucket, by_deadline=decision.by_deadline)
        n_rows, n_bytes, n_returning, due_s = totals(spans)
        self._backlog.left(group, n_rows, n_bytes)
        self._n_batches += 1
        batch = Batch(
            self._n_batches,
            group,
            bucket,
            spans,
            n_rows=n_rows,
            n_waiting=n_before,
            load=decision.load,
            reason=decision.reason,
            dispatched_s=now_s,
            predicted_s=group.costs.cost(bucket),
            due_s=due_s,
            n_returning=n_returning,
        )
        self._running.add(batch)
        group.n_running += 1
        batch.held_s = group.returning.dispatched(now_s)
        self._backlog.shares.charge(group.share, batch.predicted_s)
        self._observer.dispatched(batch)
        try:
            self._executor.start(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the batch's error
            if batch in self._running:
                self.finished(batch, None, error)
            else:
                _log.exception("the executor failed after it had finished batch %d", batch.id)

    def _drop_late(self, now_s: float) -> list[Item]:
        """End the waiting items that even the quickest bucket can't finish in time."""
        return [self._give_up(item, now_s) for item in self._backlog.late(now_s)]

    def _give_up(self, item: Item, now_s: float) -> Item:
        return self._delivery.drop(item, admission.give_up(item, now_s, backlog_s=self.clear_s))
