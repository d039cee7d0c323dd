"""What must hold whatever happens: the batcher under random calls, faults and times."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from server.batching import (
    Batcher,
    Cancelled,
    CostTable,
    DeadlineExceeded,
    Draining,
    ExampleFailed,
    ExecutionFailed,
    Group,
    Item,
    ModelUnloaded,
    QueueFull,
    QueueLimits,
    QueueTimeout,
    Quota,
    RowErrors,
    TooManyRows,
)
from tests.batching.doubles import ManualClock, ManualExecutor, ManualTicks, RecordingObserver, result_of

COST_TABLES = ({1: 1.0, 2: 1.2, 4: 1.6, 8: 2.4}, {1: 0.5}, {4: 1.0, 8: 1.1}, {1: 1.0, 8: 1.05})
MAX_ROWS = 40
ENDS = (Cancelled, DeadlineExceeded, ExampleFailed, ExecutionFailed, ModelUnloaded, QueueTimeout)


def reruns_of(item: Item) -> Iterator[Item]:
    for rerun in item.reruns:
        yield rerun
        yield from reruns_of(rerun)


class Promises(RuleBasedStateMachine):
    """Random callers around a batcher with several groups and executors."""

    admitted_items = Bundle("admitted_items")

    @initialize(lanes=st.integers(1, 3))
    def start(self, lanes: int) -> None:
        self.clock = ManualClock()
        self.ticks = ManualTicks()
        self.executor = ManualExecutor(self.clock, lanes)
        self.observer = RecordingObserver()
        self.batcher = Batcher(
            clock=self.clock,
            executor=self.executor,
            defer=self.ticks,
            limits=QueueLimits(max_rows=MAX_ROWS),
            observer=self.observer,
        )
        self.executor.batcher = self.batcher
        shared = Quota(MAX_ROWS)
        self.groups = [
            Group(i, CostTable(costs), quota=shared if i < 2 else None) for i, costs in enumerate(COST_TABLES)
        ]
        self.admitted: list[Item] = []
        self.answers: dict[Item, float] = {}
        self.n_checked = 0
        self.is_drained = False
        self.idle_groups: list[Group] = []

    def on_done(self, item: Item) -> None:
        assert item not in self.answers, "an item was answered twice"
        assert item.is_done
        self.answers[item] = self.clock()

    @rule(
        target=admitted_items,
        group=st.integers(0, len(COST_TABLES) - 1),
        n_rows=st.one_of(st.integers(1, 4), st.integers(1, MAX_ROWS + 1)),
        timeout_s=st.one_of(st.none(), st.just(30.0), st.floats(-1.0, 12.0)),
    )
    def submit(self, group: int, n_rows: int, timeout_s: float | None) -> Item:
        now_s = self.clock()
        item = Item(
            self.groups[group],
            n_rows,
            len(self.admitted),
            arrived_s=now_s,
            deadline_s=None if timeout_s is None else now_s + timeout_s,
            on_done=self.on_done,
            caller=len(self.admitted) % 3,
            row_bytes=10 * group,
        )
        try:
            self.batcher.submit(item)
        except (QueueFull, TooManyRows, DeadlineExceeded, Draining, ModelUnloaded):
            item.is_done = True
        else:
            self.admitted.append(item)
        return item

    @rule(item=consumes(admitted_items))
    def cancel(self, item: Item) -> None:
        was_waiting = item in self.admitted and any(part.next_row < part.n_rows for part in (item, *reruns_of(item)))
        if item in self.admitted:
            assert self.batcher.cancel(item) == was_waiting
        if was_waiting:
            assert isinstance(item.error, Cancelled)
            assert item in self.answers

    @rule(seconds=st.floats(0.0, 3.0))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def end_tick(self) -> None:
        self.ticks.run()
        assert self.executor.free() == 0 or self.batcher.n_waiting == 0, "an executor idles while rows wait"

    @precondition(lambda self: self.executor.running)
    @rule(index=st.integers(0, 2), fails=st.integers(0, 5), rows=st.lists(st.sampled_from(["good", "bad", "open"])))
    def finish(self, index: int, fails: int, rows: list[str]) -> None:
        index %= len(self.executor.running)
        error: Exception | None = RuntimeError("fault") if fails == 0 else None
        if fails == 1 and rows:
            fates = [rows[row % len(rows)] for row in range(self.executor.running[index].batch.n_rows)]
            bad = {row: ExampleFailed("bad") for row, fate in enumerate(fates) if fate == "bad"}
            error = RowErrors(bad, [row for row, fate in enumerate(fates) if fate == "open"])
        self.executor.finish(index, error=error)
        # What is to run again waits for the end of the tick, as new requests do.
        self.ticks.run()
        assert self.executor.free() == 0 or self.batcher.n_waiting == 0, "an executor idles while rows wait"

    @rule()
    def expire(self) -> None:
        self.batcher.expire()
        wakeup_s = self.batcher.next_wakeup_s()
        for item in self.admitted:
            if not item.is_done and item.deadline_s is not None:
                assert item.deadline_s > self.clock(), "nobody was told when the deadline passed"
                assert wakeup_s is not None
                assert wakeup_s <= item.deadline_s
            if item.next_row < item.n_rows and item.deadline_s is not None:
                last_chance_s = item.deadline_s - item.group.costs.quickest_s
                assert last_chance_s > self.clock()
                assert wakeup_s is not None
                assert wakeup_s <= last_chance_s

    @rule(group=st.integers(0, len(COST_TABLES) - 1), fails=st.booleans(), chance=st.integers(0, 9))
    def close(self, *, group: int, fails: bool, chance: int) -> None:
        closing = self.groups[group]
        if chance == 0 and not closing.is_closed:
            error = ModelUnloaded("gone") if fails else None
            self.batcher.close_group(closing, error, on_idle=lambda: self.idle_groups.append(closing))
            assert closing.n_items == 0 or not fails

    @rule(chance=st.integers(0, 19))
    def drain(self, chance: int) -> None:
        if chance == 0:
            self.batcher.drain(self.on_drained)

    def on_drained(self) -> None:
        assert all(item in self.answers for item in self.admitted)
        assert not self.executor.running
        self.is_drained = True

    @invariant()
    def every_batch_keeps_the_rules(self) -> None:
        for ran in self.executor.ran[self.n_checked :]:
            self.n_checked += 1
            assert 1 <= ran.batch.n_rows == len(ran.rows()) <= ran.batch.bucket
            assert ran.batch.bucket in ran.batch.group.costs.buckets
            for item, _, _ in ran.spans:
                assert item.group is ran.batch.group, "two groups share a batch"
                assert item.deadline_s is None or ran.now_s < item.deadline_s, "executed after the deadline"
                assert self.answers.get(item, ran.now_s) >= ran.now_s, "executed after it was answered"
            if ran.batch.reason == "oldest":
                arrivals = [item.arrived_s for item, _, _ in ran.spans]
                assert arrivals == sorted(arrivals)

    @invariant()
    def the_books_balance(self) -> None:
        waiting = [item for item in self.admitted if item.next_row < item.n_rows]
        waiting += [rerun for item in self.admitted for rerun in reruns_of(item) if rerun.next_row < rerun.n_rows]
        n_rows = sum(item.n_rows - item.next_row for item in waiting)
        groups = [*self.groups, *(group.quarantine.group for group in self.groups if group.quarantine)]
        assert self.batcher.n_waiting == n_rows == sum(group.n_rows for group in groups)
        assert self.batcher.n_running == len(self.executor.running)
        assert not any(item.is_done for item in waiting)
        for quota in {group.quota for group in self.groups if group.quota is not None}:
            assert quota.n_rows == sum(group.n_rows for group in groups if group.quota is quota)
            held = [item for item in waiting if item.group.quota is quota]
            assert quota.n_bytes == sum((item.n_rows - item.next_row) * item.row_bytes for item in held)
        least_s = sum((item.n_rows - item.next_row) * item.group.costs.row_s for item in waiting)
        assert abs(self.batcher.backlog_s * self.executor.lanes - least_s) < 1e-6
        assert self.observer.dispatched_ids == list(range(1, len(self.executor.ran) + 1))
        assert len(self.observer.finished_ids) + len(self.executor.running) == len(self.executor.ran)

    def teardown(self) -> None:
        if not hasattr(self, "batcher"):
            return
        self.batcher.drain(self.on_drained)
        self.ticks.run()
        self.executor.finish_all()
        self.every_batch_keeps_the_rules()
        self.the_books_balance()
        assert self.is_drained
        assert set(self.idle_groups) == {group for group in self.groups if group.is_closed}
        assert set(self.answers) == set(self.admitted), "an admitted item was not answered, or a refused one was"
        for item in self.admitted:
            assert not item.reruns
            if item.error is None:
                assert item.deadline_s is None or self.answers[item] < item.deadline_s, "answered after its deadline"
                assert result_of(item) == [(item.payload, row) for row in range(item.n_rows)]
            else:
                assert isinstance(item.error, ENDS)


TestPromises = Promises.TestCase
TestPromises.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
