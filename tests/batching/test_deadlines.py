"""Deadlines that pass while a batch runs, bounds in bytes, and predictions that follow what batches really take."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from server.batching import (
    CostTable,
    DeadlineExceeded,
    Group,
    Overloaded,
    QueueFull,
    QueueLimits,
    Quota,
    TooManyRows,
)
from server.batching.demand import Demand
from server.batching.pace import Pace
from tests.batching.doubles import SMALL_COSTS, Bench, result_of

#: Whatever waits is best run at once.
COSTS = {1: 1.0, 8: 1.05}


def test_a_deadline_that_passes_while_it_runs_is_answered_then_and_the_late_result_dropped() -> None:
    bench = Bench(costs=COSTS)
    hurried, patient = bench.submit("hurried", timeout_s=2.0), bench.submit("patient", timeout_s=30.0)
    bench.ticks.run()
    assert bench.batcher.next_wakeup_s() == bench.clock() + 2.0
    bench.clock.advance(1.9)
    bench.batcher.expire()
    assert not hurried.is_done
    bench.clock.advance(0.1)
    bench.batcher.expire()
    assert isinstance(hurried.error, DeadlineExceeded)
    assert "while the request was executed, 2.0 s after it was queued" in str(hurried.error)
    assert bench.batcher.next_wakeup_s() == bench.clock() + 28.0
    bench.manual.finish()
    assert bench.answered == [hurried, patient]
    assert result_of(patient) == [("patient", 0)]
    assert hurried.parts == []


def test_a_result_that_comes_after_its_deadline_is_dropped_even_if_no_timer_was_quicker() -> None:
    bench = Bench(costs=COSTS)
    late, in_time = bench.submit("late", timeout_s=2.0), bench.submit("in time", timeout_s=3.0)
    bench.ticks.run()
    bench.clock.advance(2.5)
    bench.manual.finish()
    assert isinstance(late.error, DeadlineExceeded)
    assert result_of(in_time) == [("in time", 0)]
    assert bench.batcher.next_wakeup_s() is None


def test_a_failed_batch_says_nothing_more_to_who_was_told_of_the_deadline() -> None:
    bench = Bench(costs=COSTS)
    item = bench.submit("a", timeout_s=2.0)
    bench.ticks.run()
    bench.clock.advance(2.0)
    bench.batcher.expire()
    bench.manual.finish(error=RuntimeError("fault"))
    assert bench.answered == [item]
    assert isinstance(item.error, DeadlineExceeded)


def test_what_waits_is_bounded_in_bytes_by_model_and_in_all() -> None:
    bench = Bench()
    bench.batcher._limits = QueueLimits(max_bytes=1_000, max_bytes_in_all=1_500)
    other = Group("other", CostTable(SMALL_COSTS), label="model 'other'")
    bench.submit("a", 9, row_bytes=100)
    with pytest.raises(QueueFull, match=r"900 of at most 1,000 bytes are waiting and the request has 200"):
        bench.submit("b", 2, row_bytes=100)
    with pytest.raises(TooManyRows, match=r"1,001 bytes and the queue holds 1,000 at most"):
        bench.submit("b", 1, row_bytes=1_001)
    bench.submit("c", 1, row_bytes=600, group=other)
    with pytest.raises(Overloaded, match=r"1,500 of at most 1,500 bytes are waiting in the server") as info:
        bench.submit("d", 1, row_bytes=1, group=other)
    assert info.value.retry_after_s > 0
    bench.ticks.run()
    bench.submit("e", 2, row_bytes=100)
    assert bench.batcher.n_waiting


def test_a_quota_or_a_limit_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="max_bytes is 0"):
        Quota(1, 0)
    with pytest.raises(ValueError, match="max_bytes_in_all is 0"):
        QueueLimits(max_bytes_in_all=0)


def test_the_batch_that_runs_counts_against_a_deadline() -> None:
    bench = Bench(costs=COSTS)
    bench.submit("running")
    bench.ticks.run()
    with pytest.raises(QueueFull, match=r"the deadline is in 1\.5 s and the requests ahead take 1\.0 s"):
        bench.submit("late", timeout_s=1.5)
    bench.submit("in time", timeout_s=20.0)


def test_when_to_come_back_follows_what_batches_really_take() -> None:
    pace = Pace()
    now_s = 0.0
    for _ in range(200):
        pace.ran(predicted_s=0.01, dispatched_s=now_s + 0.005, finished_s=now_s + 0.02, is_busy=True)
        now_s += 0.02
    assert pace.seconds == pytest.approx(2.0, rel=0.05)
    for _ in range(200):
        pace.ran(predicted_s=0.01, dispatched_s=now_s, finished_s=now_s + 0.01, is_busy=False)
        now_s += 5.0
    assert pace.seconds == pytest.approx(1.0, rel=0.05), "a pause counted as work"


@given(
    waiting=st.lists(st.tuples(st.integers(1, 8), st.floats(0.1, 50.0)), max_size=60),
    new=st.tuples(st.integers(1, 8), st.floats(0.1, 60.0)),
)
def test_an_item_is_admitted_only_if_everything_due_later_still_fits(
    waiting: list[tuple[int, float]], new: tuple[int, float]
) -> None:
    assume(waiting and new[1] < max(timeout_s for _, timeout_s in waiting))
    bench = Bench(costs={1: 0.5})
    for n_rows, timeout_s in waiting:
        bench.group.push(bench.make("w", n_rows, timeout_s=timeout_s))
    item = bench.make("new", new[0], timeout_s=new[1])
    now_s = bench.clock()
    admitted = Demand().admits(item, [bench.group], now_s, work_s=new[0] * 0.5, start_s=0.25, pace=1.1)
    jobs = sorted([*((timeout_s, n_rows) for n_rows, timeout_s in waiting), (new[1], new[0])])
    total_s, fits = 0.25, True
    for timeout_s, n_rows in jobs:
        total_s += 1.1 * 0.5 * n_rows
        fits &= timeout_s < new[1] or total_s <= timeout_s
    assert fits or not admitted, "somebody who is due later was made late"
