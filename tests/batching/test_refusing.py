"""Who is refused, and who is told in time that it is too late: the batcher under limits and deadlines."""

from __future__ import annotations

import pytest

from server.batching import (
    CostTable,
    DeadlineExceeded,
    Group,
    QueueFull,
    QueueTimeout,
    Quota,
    Reason,
    TooManyRows,
)
from tests.batching.doubles import SMALL_COSTS, Bench, result_of

# Refusals.


def test_a_full_queue_refuses_and_says_when_to_try_again() -> None:
    bench = Bench(max_rows=10)
    bench.submit("a", 9)
    with pytest.raises(
        QueueFull, match=r"model 'digits': 9 of at most 10 rows are waiting and the request has 2"
    ) as info:
        bench.submit("b", 2)
    assert info.value.retry_after_s == pytest.approx(9 * 0.3)
    bench.submit("c", 1)
    assert bench.batcher.n_waiting == 10


def test_a_request_that_never_fits_is_told_so() -> None:
    bench = Bench(max_rows=10)
    with pytest.raises(TooManyRows, match="11 examples and the queue holds 10"):
        bench.submit("a", 11)


def test_groups_of_a_model_share_its_quota_and_other_models_do_not() -> None:
    bench = Bench()
    quota = Quota(4)
    one, two = (Group(i, CostTable(SMALL_COSTS), quota=quota) for i in range(2))
    bench.submit("a", 4, group=one)
    with pytest.raises(QueueFull):
        bench.submit("b", 1, group=two)
    bench.submit("c", 2)
    bench.ticks.run()
    bench.submit("d", 2, group=two)
    assert quota.n_rows == 2


def test_a_deadline_that_has_passed_is_refused() -> None:
    bench = Bench()
    with pytest.raises(DeadlineExceeded, match="passed 500 ms before"):
        bench.submit("a", timeout_s=-0.5)


def test_a_deadline_nearer_than_the_quickest_bucket_is_refused() -> None:
    bench = Bench()
    with pytest.raises(DeadlineExceeded, match=r"in 900 ms and the request takes 1\.0 s"):
        bench.submit("a", timeout_s=0.9)


def test_a_deadline_that_the_requests_ahead_make_impossible_is_refused_with_a_time_to_return() -> None:
    bench = Bench()
    for _ in range(10):
        bench.submit("ahead", 8, timeout_s=30.0)
    with pytest.raises(QueueFull, match="the requests ahead take 24") as info:
        bench.submit("b", 30, timeout_s=30.0)
    assert info.value.retry_after_s == pytest.approx(24.0)


def test_an_urgent_request_is_admitted_past_a_queue_with_time_to_spare() -> None:
    bench = Bench(inline=True)
    for _ in range(10):
        bench.submit("ahead", 8, timeout_s=60.0)
    urgent = bench.submit("urgent", timeout_s=3.0)
    bench.ticks.run()
    assert bench.payloads(0)[0] == "urgent"
    assert bench.ran[0].batch.reason == Reason.DEADLINE
    assert result_of(urgent) == [("urgent", 0)]


# Deadlines.


def test_an_item_that_waits_past_its_last_chance_is_answered_and_never_executed() -> None:
    bench = Bench()
    bench.submit("running")
    bench.ticks.run()
    item = bench.submit("late", timeout_s=5.0)
    assert bench.batcher.next_wakeup_s() == bench.clock() + 4.0
    bench.clock.advance(3.9)
    bench.batcher.expire()
    assert not item.is_done
    bench.clock.advance(0.1)
    bench.batcher.expire()
    assert isinstance(item.error, QueueTimeout)
    assert "after 4.0 s in the queue" in str(item.error)
    assert bench.observer.dropped_items == [item]
    bench.manual.finish()
    assert len(bench.ran) == 1
    assert bench.batcher.next_wakeup_s() is None


def test_a_late_item_is_dropped_at_dispatch_even_if_nobody_called_expire() -> None:
    bench = Bench()
    bench.submit("running")
    bench.ticks.run()
    late, in_time = bench.submit("late", timeout_s=5.0), bench.submit("in time", timeout_s=50.0)
    bench.clock.advance(10.0)
    bench.manual.finish()
    assert isinstance(late.error, QueueTimeout)
    assert bench.payloads(1) == ["in time"]
    bench.manual.finish()
    assert result_of(in_time) == [("in time", 0)]


def test_an_item_past_saving_does_not_take_along_one_that_can_be_saved() -> None:
    bench = Bench(costs={1: 1.0, 8: 1.2})
    bench.submit("running")
    bench.ticks.run()
    lost, saved = bench.submit("lost", timeout_s=5.0), bench.submit("saved", timeout_s=5.6)
    bench.clock.advance(4.5)
    bench.manual.finish()
    assert isinstance(lost.error, QueueTimeout)
    assert (bench.payloads(1), bench.ran[1].batch.bucket) == (["saved"], 1)
    bench.manual.finish()
    assert saved.error is None


def test_the_wakeup_follows_the_earliest_deadline_whatever_the_order_of_arrival() -> None:
    bench = Bench()
    bench.submit("running")
    bench.ticks.run()
    now_s = bench.clock()
    for timeout_s in (30.0, 10.0, 20.0):
        bench.submit(timeout_s, timeout_s=timeout_s)
    for expected_s in (10.0, 20.0, 30.0):
        wakeup_s = bench.batcher.next_wakeup_s()
        assert wakeup_s == now_s + expected_s - 1.0
        bench.clock.now_s = wakeup_s
        bench.batcher.expire()
    assert [item.payload for item in bench.answered] == [10.0, 20.0, 30.0]
    assert bench.batcher.next_wakeup_s() is None


def test_goodput_stays_near_capacity_under_three_times_the_load() -> None:
    costs = {1: 0.010, 8: 0.013, 32: 0.020}
    bench = Bench(costs=costs, max_rows=100_000)
    capacity = 32 / 0.020
    in_time = refused = 0
    start_s = bench.clock()
    sent = 0
    while bench.clock() < start_s + 10.0:
        while sent < 3 * capacity * (bench.clock() - start_s):
            sent += 1
            try:
                bench.submit(sent, timeout_s=0.2)
            except (QueueFull, DeadlineExceeded):
                refused += 1
        bench.ticks.run()
        bench.clock.advance(costs[bench.manual.running[0].batch.bucket] if bench.manual.running else 0.001)
        bench.batcher.expire()
        if bench.manual.running:
            bench.manual.finish()
        in_time += sum(item.error is None and bench.clock() <= item.due_s for item in bench.answered)
        bench.answered.clear()
    assert in_time >= 0.95 * capacity * 10.0
    assert refused > sent / 2
