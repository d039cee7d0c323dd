"""Admission, dispatch and delivery: the shell around ``plan``.

One thread drives a batcher: every method is called on it, and every callback runs on it. Time comes from
``clock``, work goes to ``executor``, and ``defer`` runs a function once the current event-loop tick is over, so
that all requests of one tick are planned for together.

What always holds between calls:

- An admitted item is in exactly one place: rows wait in its group's queue, or run in batches, or it is done.
- ``on_done`` runs after the batcher's own state is true again, so that it may call any method here.
- A free executor is given its next batch before the answers of the last one are delivered, so that it works
  while answers are encoded.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from server.batching import admission
from server.batching.admission import QueueLimits
from server.batching.costs import CostTable
from server.batching.errors import Cancelled, ExecutionFailed
from server.batching.idleness import Idleness
from server.batching.interfaces import Executor, Observer
from server.batching.isolate import RowErrors
from server.batching.items import Batch, Item, Part
from server.batching.observing import GuardedObserver, NullObserver
from server.batching.plan import Dispatch, Policy, WaitUntil, plan
from server.batching.queue import Group, Quota
from server.batching.shares import Shares
from server.errors import RowwiseError

__all__ = ["Batcher"]

_log = logging.getLogger(__name__)


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
        #: The groups with waiting rows, in the order in which they got their first one.
        self._active: dict[Group, None] = {}
        #: Batches that were started and have not finished, by id.
        self._running: dict[int, Batch] = {}
        self._shares = Shares()
        self._n_batches = 0
        self._n_waiting = 0
        #: Least seconds of execution that the waiting rows need: each at its group's best throughput.
        self._backlog_s = 0.0
        #: At least the furthest deadline of a waiting item.
        self._latest_due_s = -math.inf
        #: At most the time at which the first waiting row can no longer be finished in time.
        self._alarm_s = math.inf
        #: True while a poll is arranged for the end of the tick; while poll's loop runs.
        self._poll_is_due = False
        self._is_polling = False
        #: Every call that may answer items is inside of it, so that idleness is reported after the last answer.
        self._call = Idleness()
        self._is_draining = False

    @property
    def n_waiting(self) -> int:
        """Rows that no batch has taken yet."""
        return self._n_waiting

    @property
    def n_running(self) -> int:
        """Batches that were started and have not finished."""
        return len(self._running)

    @property
    def backlog_s(self) -> float:
        """Seconds in which the waiting rows could be executed at the best measured throughput."""
        return self._backlog_s / self._n_executors()

    def submit(self, item: Item) -> None:
        """Admit an item and arrange for a poll at the end of the tick.

        Errors: QueueFull, TooManyRows, DeadlineExceeded, Draining, ModelUnloaded. ``on_done`` is then not called.
        """
        group, n_rows = item.group, item.n_rows
        assert n_rows > 0, "an item has at least one row"
        costs, quota = group.costs, group.quota
        if quota is None:
            quota = group.quota = Quota(self._limits.max_rows)
        if self._is_draining or group.is_closed:
            raise admission.refuse_closed(group, is_draining=self._is_draining, backlog_s=self.backlog_s)
        if quota.n_rows + n_rows > quota.max_rows:
            raise admission.refuse_full(group, quota, n_rows, backlog_s=self.backlog_s)
        work_s = n_rows * costs.row_s
        due_s, now_s = item.due_s, self._clock()
        margin = self._policy.cost_margin
        if due_s - now_s <= margin * (self._backlog_s + work_s + costs.quickest_s):
            self._check_deadline(item, now_s)

        if not group.n_items:
            self._active[group] = None
        share = group.share
        if not share.n_waiting:
            self._shares.enter(share)
        share.n_waiting += n_rows
        group.push(item)
        quota.n_rows += n_rows
        self._n_waiting += n_rows
        self._backlog_s += work_s
        if due_s > self._latest_due_s:
            self._latest_due_s = due_s
        if due_s - margin * costs.quickest_s < self._alarm_s:
            self._alarm_s = due_s - margin * costs.quickest_s
        if not self._poll_is_due:
            self._poll_is_due = True
            self._defer(self._end_of_tick)

    def cancel(self, item: Item) -> bool:
        """Take an item back; none of its rows is executed from now on.

        True: it was still waiting, or a part of it was, and has ended with Cancelled (rows that run already are
        let run, for nobody). False: all of its rows run, or it is done; ``on_done`` comes or came as usual.
        """
        if item.next_row == item.n_rows:
            return False
        with self._call:
            self._drop(item, Cancelled("the request was cancelled before it was executed"))
            self._answer(item)
        return True

    def poll(self) -> None:
        """Start a batch on every free executor while rows wait. Harmless at any time."""
        if self._is_polling:
            return
        self._is_polling = True
        try:
            with self._call:
                while self._active and self._poll_once():
                    pass
        finally:
            self._is_polling = False

    def finished(self, batch: Batch, outputs: object, error: BaseException | None) -> None:
        """Deliver a batch that the executor has run: ``outputs``, or the ``error`` that it raised.

        RowErrors come with outputs: the items of the rows that it names fail, the others are delivered.
        """
        del self._running[batch.id]
        batch.finished_s = self._clock()
        group, took_s = batch.group, batch.finished_s - batch.dispatched_s
        group.n_running -= 1
        group.share.used_s += took_s - batch.predicted_s
        if error is None and group.drift is not None:
            group.drift.ran(batch.bucket, took_s)
        with self._call:
            failed = [] if error is None else self._execution_failed(batch, error)
            try:
                self.poll()
            finally:
                self._observer.finished(batch, error)
                if error is None or isinstance(error, RowErrors):
                    self._deliver(batch, outputs)
                for item in failed:
                    self._answer(item)
                batch.spans = []

    def next_wakeup_s(self) -> float | None:
        """Return when ``expire`` is to be called next, by the batcher's clock; None if nothing has a deadline.

        It is never later than the moment at which a waiting item can no longer be finished in time. It may be
        earlier: calling ``expire`` then does nothing but bring this up to date.
        """
        return None if self._alarm_s == math.inf else self._alarm_s

    def expire(self) -> None:
        """Answer, with DeadlineExceeded, the waiting items that can no longer be finished in time."""
        with self._call:
            now_s = self._clock()
            if now_s >= self._alarm_s:
                for item in self._drop_late(now_s):
                    self._answer(item)

    def drain(self, on_drained: Callable[[], None] | None = None) -> None:
        """Stop admitting; what waits and runs is finished. ``on_drained`` is called once all of it is answered."""
        with self._call:
            self._is_draining = True
            if on_drained is not None:
                self._call.watch(lambda: not self._n_waiting and not self._running, on_drained)

    def close_group(
        self, group: Group, error: RowwiseError | None = None, *, on_idle: Callable[[], None] | None = None
    ) -> None:
        """Stop admitting to ``group``. Its waiting items end with ``error``, or run first if there is none.

        ``on_idle`` is called once no row of the group waits or runs and all of its items are answered; after
        that the model can be unloaded.
        """
        with self._call:
            group.is_closed = True
            if on_idle is not None:
                self._call.watch(lambda: not group.n_items and not group.n_running, on_idle)
            if error is not None:
                ended = []
                while group.n_items:
                    ended.append(self._drop(group.first(), error))
                for item in ended:
                    self._answer(item)

    def recost(self, group: Group, costs: CostTable) -> None:
        """Plan with other costs of the same buckets from now on."""
        with self._call:
            self._backlog_s += group.n_rows * (costs.row_s - group.costs.row_s)
            group.costs = costs
            if group.drift is not None:
                group.drift.adopted()
            for item in self._drop_late(self._clock()):
                self._answer(item)

    def _check_deadline(self, item: Item, now_s: float) -> None:
        """Raise if ``item`` can't be answered in time. Asked only when its deadline is near for what waits."""
        costs, margin = item.group.costs, self._policy.cost_margin
        n_executors = self._n_executors()
        refusal = admission.refuse_late(
            item,
            now_s=now_s,
            work_s=margin * max(costs.quickest_s, item.n_rows * costs.row_s / n_executors),
            backlog_s=margin * self._backlog_s / n_executors,
            is_due_last=item.due_s >= self._latest_due_s,
        )
        if refusal is not None:
            raise refusal

    def _n_executors(self) -> int:
        """Count the batches that can run at a time, as far as it shows."""
        return max(1, self._executor.free() + len(self._running))

    def _end_of_tick(self) -> None:
        self._poll_is_due = False
        self.poll()

    def _poll_once(self) -> bool:
        """Carry out one decision of the planner. False: there is nothing to start now."""
        now_s = self._clock()
        late = self._drop_late(now_s) if now_s >= self._alarm_s else []
        for group in self._active:
            group.observe(now_s)
        n_free = self._executor.free()
        decision = plan(self._active, self._policy, now_s, n_free, n_executors=max(1, n_free + len(self._running)))
        if isinstance(decision, Dispatch):
            group = decision.queue
            while group.due_s < decision.give_up_before_s:
                late.append(self._drop_first_due(group, now_s))
            if group.n_items:
                self._start(decision, now_s)
        elif isinstance(decision, WaitUntil):
            self._alarm_s = decision.wakeup_s
        for item in late:
            self._answer(item)
        return isinstance(decision, Dispatch)

    def _start(self, decision: Dispatch[Group], now_s: float) -> None:
        group, bucket = decision.queue, decision.bucket
        n_before = group.n_rows
        spans = group.take(bucket, by_deadline=decision.by_deadline)
        n_rows = n_before - group.n_rows
        self._left(group, n_rows)
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
        )
        self._running[batch.id] = batch
        group.n_running += 1
        self._shares.charge(group.share, batch.predicted_s)
        self._observer.dispatched(batch)
        try:
            self._executor.start(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the batch's error
            if batch.id in self._running:
                self.finished(batch, None, error)
            else:
                _log.exception("the executor failed after it had finished batch %d", batch.id)

    def _deliver(self, batch: Batch, outputs: object) -> None:
        """Give each item its rows of ``outputs``, and answer those that are now complete."""
        offset = 0
        for item, start, stop in batch.spans:
            n_rows = stop - start
            if not item.is_done:
                item.parts.append(Part(batch, outputs, offset, start, stop))
                item.n_unfinished -= n_rows
                if not item.n_unfinished:
                    if n_rows != item.n_rows:
                        item.parts.sort(key=_first_row)
                    self._answer(item)
            offset += n_rows

    def _execution_failed(self, batch: Batch, cause: BaseException) -> list[Item]:
        """Decide what becomes of the items of a batch that raised, and return those that are to be answered.

        Every executor error comes through here and only here. Each item gets an error of its own; one that is
        the server's own already says what to do, and stays as it is.
        """
        failed = []
        row = 0
        for item, start, stop in batch.spans:
            error: RowwiseError | None
            if isinstance(cause, RowErrors):
                error = next((cause.errors[bad] for bad in range(row, row + stop - start) if bad in cause.errors), None)
            elif isinstance(cause, RowwiseError):
                error = cause
            else:
                error = ExecutionFailed(f"{batch.group.label}: execution failed: {_describe(cause)}", cause=cause)
            row += stop - start
            if error is None or item.is_done:
                continue
            if item.next_row < item.n_rows:
                self._drop(item, error)
            else:
                item.error = error
                item.is_done = True
            failed.append(item)
        return failed

    def _drop_late(self, now_s: float) -> list[Item]:
        """Drop the items that even the quickest bucket would finish late, and set the alarm for the next one."""
        late = []
        alarm_s = math.inf
        for group in tuple(self._active):
            slack_s = self._policy.cost_margin * group.costs.quickest_s
            while group.due_s - slack_s <= now_s:
                late.append(self._drop_first_due(group, now_s))
            alarm_s = min(alarm_s, group.due_s - slack_s)
        self._alarm_s = alarm_s
        return late

    def _drop_first_due(self, group: Group, now_s: float) -> Item:
        item = group.first(by_deadline=True)
        return self._drop(item, admission.give_up(item, now_s))

    def _drop(self, item: Item, error: RowwiseError) -> Item:
        """End a waiting item without its result. The caller answers it once the state is true again."""
        self._left(item.group, item.group.drop(item))
        item.error = error
        item.is_done = True
        self._observer.dropped(item)
        return item

    def _left(self, group: Group, n_rows: int) -> None:
        """Account for rows that no longer wait."""
        assert group.quota is not None
        group.quota.n_rows -= n_rows
        group.share.n_waiting -= n_rows
        self._n_waiting -= n_rows
        self._backlog_s -= n_rows * group.costs.row_s
        if not group.n_items:
            del self._active[group]
            if not self._active:
                self._backlog_s = 0.0
                self._latest_due_s = -math.inf
                self._alarm_s = math.inf

    def _answer(self, item: Item) -> None:
        item.is_done = True
        on_done, item.on_done = item.on_done, _answered
        try:
            on_done(item)
        except Exception:  # noqa: BLE001 - one caller's fault must not reach its batch-mates
            _log.exception("on_done of an item of %s failed", item.group.label)


def _answered(item: Item) -> None:
    """Stands in ``on_done`` of a done item: frees what it referred to, and catches a second answer."""
    raise AssertionError(f"an item of {item.group.label} was answered twice")


def _first_row(part: Part) -> int:
    return part.start


def _describe(cause: BaseException) -> str:
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
