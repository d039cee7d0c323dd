"""Bad examples among good ones: who fails, who waits, and what it costs the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.batching import (
    Batch,
    Cancelled,
    CostTable,
    ExampleFailed,
    Group,
    Item,
    QueueTimeout,
    RowErrors,
    isolate,
    runs_of_slice,
)
from server.batching.quarantine import Quarantine
from tests.batching.doubles import SMALL_COSTS, Bench, ManualClock, ManualExecutor, Ran, result_of

#: Whatever waits is best run at once.
COSTS = {1: 1.0, 64: 1.1}
QUICK_COSTS = {size: cost_s / 1_000 for size, cost_s in COSTS.items()}


class SearchingExecutor(ManualExecutor):
    """Refuses the rows that are in ``bad``, searching for them as the engine does, in the time that its runs take."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.bad: set[tuple[object, int]] = set()
        #: Executions, each with its rows; the first of a batch too.
        self.runs: list[list[tuple[object, int]]] = []

    def finish(self, index: int = 0, *, error: BaseException | None = None) -> None:
        assert self.batcher is not None
        ran = self.running.pop(index)
        rows = ran.rows()
        try:
            self._run(ran.batch, rows)
        except ExampleFailed as failure:
            found = isolate(
                range(len(rows)),
                failure,
                lambda part: self._run(ran.batch, [rows[row] for row in part]),
                max_runs=runs_of_slice(len(rows)),
            )
            error = RowErrors(found.errors, found.unsettled)
        self.batcher.finished(ran.batch, rows, error)

    def _run(self, batch: Batch, rows: Sequence[tuple[object, int]]) -> None:
        self.runs.append(list(rows))
        costs = batch.group.costs
        self.clock.advance(next(costs.cost(bucket) for bucket in costs.buckets if len(rows) <= bucket))
        met = [row for row in rows if row in self.bad]
        if met:
            raise ExampleFailed(f"{met[0]} is bad")


class PoisonBench(Bench):
    """A bench whose executor knows bad rows."""

    def __init__(self, costs: dict[int, float] | None = None) -> None:
        super().__init__(costs=costs or COSTS)
        self.searching = self.executor = SearchingExecutor(self.clock)
        self.searching.batcher = self.batcher
        self.batcher._executor = self.searching

    def run(self) -> None:
        """Let everything that waits run."""
        self.ticks.run()
        while self.searching.running:
            self.searching.finish()
            self.ticks.run()


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    bad=st.sets(st.tuples(st.integers(0, 29), st.integers(0, 8)), max_size=12),
)
def test_one_failing_item_fails_alone_and_names_its_instances(sizes: list[int], bad: set[tuple[int, int]]) -> None:
    bench = PoisonBench()
    bench.searching.bad = {(number, row) for number, row in bad if number < len(sizes) and row < sizes[number]}
    items = [bench.submit(number, n_rows) for number, n_rows in enumerate(sizes)]
    bench.run()
    assert sorted(bench.answered, key=id) == sorted(items, key=id)
    for number, item in enumerate(items):
        mine = sorted(row for poisoned, row in bench.searching.bad if poisoned == number)
        if not mine:
            assert result_of(item) == [(number, row) for row in range(item.n_rows)]
            continue
        # What of a request is in later batches is not executed once it has failed.
        assert isinstance(item.error, ExampleFailed)
        assert str(item.error).startswith("model 'digits' refuses ")
        assert f"instance {mine[0]}: ({number}, {mine[0]}) is bad" in str(item.error)
    assert bench.batcher.n_waiting == 0


def test_an_error_names_the_bad_instances_of_a_request_and_not_all_of_hundreds() -> None:
    bench = PoisonBench()
    bench.searching.bad = {("two", 1), ("two", 3)} | {("many", row) for row in range(40)}
    two, many = bench.submit("two", 5), bench.submit("many", 40)
    bench.run()
    assert str(two.error) == (
        "model 'digits' refuses 2 instances: instance 1: ('two', 1) is bad; instance 3: ('two', 3) is bad"
    )
    assert str(many.error).count("is bad") <= 8


@pytest.mark.parametrize("n_bad", [1, 2])
def test_k_bad_rows_of_64_callers_are_k_errors_in_few_further_executions(n_bad: int) -> None:
    bench = PoisonBench()
    items = [bench.submit(number) for number in range(64)]
    bench.searching.bad = {(number * 29 + 3, 0) for number in range(n_bad)}
    bench.run()
    assert sum(item.error is not None for item in items) == n_bad
    assert len(bench.searching.runs) - 1 <= n_bad * 6 + (1 if n_bad == 1 else 3)


def test_who_is_answered_can_cancel_what_is_to_run_again_of_the_same_batch() -> None:
    """A connection that breaks takes all of its requests back, some of them answered a moment before others."""
    bench = PoisonBench()
    items = [bench.submit(number) for number in range(64)]
    bench.searching.bad = {(number, 0) for number in range(0, 64, 2)}
    taken: list[tuple[Item, bool]] = []

    def take_back(_: Item) -> None:
        if not taken:
            taken.extend((item, bench.batcher.cancel(item)) for item in items if not item.is_done and item.reruns)

    answered_first = items[1]
    answered_first.on_done = take_back
    bench.ticks.run()
    bench.searching.finish()
    assert answered_first.is_done
    assert taken
    assert all(was_waiting for _, was_waiting in taken)
    assert bench.batcher.n_waiting == 0
    n_runs = len(bench.searching.runs)
    bench.run()
    assert len(bench.searching.runs) == n_runs, "what was taken back ran again"


def test_others_get_their_turn_before_a_poisoned_batch_is_searched_to_its_end() -> None:
    bench = PoisonBench()
    poisoned = [bench.submit(number) for number in range(64)]
    bench.searching.bad = {(number, 0) for number in range(0, 64, 2)}
    bench.ticks.run()
    other = bench.submit("other", group=Group("other", CostTable(COSTS)))
    bench.searching.finish()
    bench.searching.finish()
    assert other.error is None
    assert other.is_done
    assert not all(item.is_done for item in poisoned)
    assert len(bench.searching.runs) - 2 <= runs_of_slice(64) + 6
    bench.run()
    assert [item.error is None for item in poisoned] == [number % 2 == 1 for number in range(64)]


def test_rows_that_wait_to_run_again_can_be_taken_back() -> None:
    bench = PoisonBench()
    first, second = bench.submit("a", 32), bench.submit("b", 32)
    bench.ticks.run()
    ran = bench.searching.running.pop()
    bench.batcher.finished(ran.batch, ran.rows(), RowErrors({0: ExampleFailed("bad")}, range(40, 50)))
    assert isinstance(first.error, ExampleFailed)
    assert bench.batcher.n_waiting == 10
    assert bench.batcher.cancel(second)
    assert isinstance(second.error, Cancelled)
    assert bench.batcher.n_waiting == 0
    bench.run()
    assert bench.searching.runs == []


def test_rows_that_wait_to_run_again_keep_their_deadline() -> None:
    bench = PoisonBench()
    item = bench.submit("a", 10, timeout_s=20.0)
    bench.ticks.run()
    ran = bench.searching.running.pop()
    bench.batcher.finished(ran.batch, ran.rows(), RowErrors({}, [3, 4]))
    bench.submit("blocks the executor")
    bench.clock.advance(19.5)
    bench.batcher.expire()
    assert isinstance(item.error, QueueTimeout)
    assert bench.batcher.n_waiting == 1


def bad_rows(bench: PoisonBench, caller: str, n_rows: int) -> list[Item]:
    """Send so many bad rows, one after the other, among good ones of others."""
    items = []
    for number in range(n_rows):
        payload = (caller, number)
        bench.searching.bad.add((payload, 0))
        items.append(bench.submit(payload, caller=caller))
        for other in range(7):
            bench.submit(("good", number, other), caller=f"other {other}")
        bench.run()
    return items


def mates(bench: PoisonBench, item: Item) -> set[object]:
    """Whose rows shared the last batch of an item."""
    (ran,) = [ran for ran in bench.ran if any(member is item for member, _, _ in ran.spans)]
    return {member.caller for member, _, _ in ran.spans}


def test_a_caller_that_keeps_sending_poison_no_longer_shares_batches_with_others() -> None:
    bench = PoisonBench(QUICK_COSTS)
    items = bad_rows(bench, "mallory", 10)
    assert [len(mates(bench, item)) for item in items] == [8] * 4 + [1] * 6
    assert all(isinstance(item.error, ExampleFailed) for item in items)
    good = bench.submit("a good one of mallory's", caller="mallory")
    bench.submit("another's", caller="alice")
    bench.run()
    assert result_of(good) == [("a good one of mallory's", 0)]
    assert mates(bench, good) == {"mallory"}


def test_a_caller_that_has_stopped_sending_poison_is_let_back_after_a_while() -> None:
    bench = PoisonBench(QUICK_COSTS)
    bad_rows(bench, "mallory", 6)
    bench.clock.advance(10.0)
    item = bench.submit("good", caller="mallory")
    bench.submit("another's", caller="alice")
    bench.run()
    assert mates(bench, item) == {"mallory", "alice"}


def test_a_proxy_of_many_callers_stays_with_the_others_when_one_of_them_sends_poison() -> None:
    bench = PoisonBench(QUICK_COSTS)
    for number in range(20):
        bench.searching.bad.add((("bad", number), 0))
        bench.submit(("bad", number), caller="proxy")
        for other in range(15):
            bench.submit((number, other), caller="proxy")
        bench.run()
    item = bench.submit("good", caller="proxy")
    bench.submit("another's", caller="alice")
    bench.run()
    assert mates(bench, item) == {"proxy", "alice"}


def test_callers_are_told_apart_only_where_batches_failed() -> None:
    bench = PoisonBench()
    for caller in ("alice", "bob"):
        bench.submit(caller, caller=caller)
    bench.run()
    assert bench.group.quarantine is None


def test_the_callers_that_are_remembered_are_bounded() -> None:
    quarantine = Quarantine(Group("apart", CostTable(SMALL_COSTS)))
    for number in range(5_000):
        quarantine.failed([(number, True)] * 4 + [(None, True), ("good", False)], float(number))
    assert len(quarantine._records) == 1_024
    assert quarantine.holds(4_999, 5_000.0)
    assert not quarantine.holds(3_000, 5_000.0)
    assert not quarantine.holds("good", 5_000.0)
    assert not quarantine.holds(None, 5_000.0)


def test_closing_a_group_waits_for_what_runs_again() -> None:
    bench = PoisonBench()
    items = [bench.submit(number) for number in range(64)]
    bench.searching.bad = {(number, 0) for number in range(64)}
    bench.ticks.run()
    idle: list[int] = []
    bench.batcher.close_group(bench.group, on_idle=lambda: idle.append(len(bench.answered)))
    bench.run()
    assert idle == [64]
    assert all(isinstance(item.error, ExampleFailed) for item in items)
    assert bench.group.quarantine is None


def test_the_batch_that_ran_is_what_an_answer_from_two_runs_names() -> None:
    bench = PoisonBench()
    item = bench.submit("a", 10)
    bench.ticks.run()
    ran: Ran = bench.searching.running.pop()
    bench.batcher.finished(ran.batch, ran.rows(), RowErrors({}, [0, 1, 5]))
    bench.run()
    assert result_of(item) == [("a", row) for row in range(10)]
    assert [(part.start, part.stop) for part in item.parts] == [(0, 2), (2, 5), (5, 6), (6, 10)]
