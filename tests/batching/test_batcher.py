"""What a shell around the batcher sees, case by case."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest

from server.batching import (
    Cancelled,
    CostTable,
    DeadlineExceeded,
    Draining,
    ExecutionFailed,
    Group,
    Item,
    ModelUnloaded,
    QueueFull,
    QueueTimeout,
    Quota,
    Reason,
    TooManyRows,
)
from tests.batching.doubles import SMALL_COSTS, Bench, RaisingObserver, result_of


def test_a_lone_row_is_dispatched_at_the_end_of_its_tick() -> None:
    bench = Bench(inline=True)
    item = bench.submit("a")
    assert not bench.ran
    bench.ticks.run()
    assert bench.answered == [item]
    assert result_of(item) == [("a", 0)]


def test_all_rows_of_a_tick_share_one_poll_and_one_batch() -> None:
    bench = Bench(inline=True, costs={1: 1.0, 8: 1.2})
    items = [bench.submit(i) for i in range(6)]
    assert len(bench.ticks.deferred) == 1
    bench.ticks.run()
    assert len(bench.ran) == 1
    batch = bench.ran[0].batch
    assert (batch.bucket, batch.n_rows, batch.n_padding, batch.reason) == (8, 6, 2, Reason.OLDEST)
    assert batch.predicted_s == 1.2
    assert [result_of(item) for item in items] == [[(i, 0)] for i in range(6)]


def test_rows_gather_while_a_batch_runs_and_go_as_soon_as_it_ends() -> None:
    bench = Bench()
    first = bench.submit("first")
    bench.ticks.run()
    for i in range(4):
        bench.submit(i)
        bench.ticks.run()
    assert len(bench.ran) == 1
    bench.manual.finish()
    assert bench.payloads(1) == [0, 1, 2, 3]
    assert bench.answered == [first]


def test_the_next_batch_starts_before_answers_are_delivered() -> None:
    bench = Bench()
    seen: list[int] = []
    item = bench.make("first")
    item.on_done = lambda _: seen.append(len(bench.ran))
    bench.batcher.submit(item)
    bench.ticks.run()
    bench.submit("second")
    bench.manual.finish()
    assert seen == [2]


def test_an_item_with_more_rows_than_the_largest_bucket_comes_back_whole_and_in_order() -> None:
    bench = Bench(lanes=4)
    before, big, after = bench.submit("before", 3), bench.submit("big", 21), bench.submit("after", 2)
    bench.ticks.run()
    assert len(bench.manual.running) == 4
    while bench.manual.running:
        bench.manual.finish(-1)
    assert result_of(big) == [("big", row) for row in range(21)]
    assert result_of(before) == [("before", row) for row in range(3)]
    assert result_of(after) == [("after", row) for row in range(2)]
    assert len(big.parts) > 2


def test_a_split_item_is_answered_when_its_last_part_is() -> None:
    bench = Bench(lanes=2)
    item = bench.submit("big", 16)
    bench.ticks.run()
    bench.manual.finish(1)
    assert not item.is_done
    bench.manual.finish(0)
    assert bench.answered == [item]


def test_one_batch_goes_to_each_free_executor() -> None:
    bench = Bench(lanes=3)
    bench.submit("big", 100)
    bench.ticks.run()
    assert len(bench.manual.running) == 3


def test_groups_never_share_a_batch_and_are_served_by_arrival() -> None:
    bench = Bench(inline=True)
    groups = [Group(i, CostTable(SMALL_COSTS)) for i in range(3)]
    for i in range(12):
        bench.submit(i, group=groups[i % 3])
        bench.clock.advance(0.1)
    bench.ticks.run()
    assert [bench.payloads(i) for i in range(3)] == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]


def test_a_quiet_group_is_served_in_its_turn_beside_a_busy_one() -> None:
    bench = Bench()
    quiet = Group("quiet", CostTable(SMALL_COSTS))
    bench.submit("busy", 20)
    bench.ticks.run()
    bench.clock.advance(1.0)
    item = bench.submit("quiet", group=quiet)
    for _ in range(50):
        bench.clock.advance(1.0)
        bench.submit("busy", 8)
        bench.manual.finish()
        if item.is_done:
            break
    assert item.is_done
    assert len(bench.ran) <= 6


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


# Faults.


def test_each_item_of_a_batch_that_raised_gets_an_error_of_its_own() -> None:
    bench = Bench()
    items = [bench.submit(i) for i in range(4)]
    bench.ticks.run()
    cause = ZeroDivisionError("integer division by zero")
    bench.manual.finish(error=cause)
    errors = [item.error for item in items]
    assert all(isinstance(error, ExecutionFailed) and error.cause is cause for error in errors)
    assert len({id(error) for error in errors}) == 4
    assert str(errors[0]) == "model 'digits': execution failed: ZeroDivisionError: integer division by zero"


def test_an_error_of_the_servers_own_keeps_its_class() -> None:
    bench = Bench()
    item = bench.submit("a")
    bench.ticks.run()
    error = ModelUnloaded("gone")
    bench.manual.finish(error=error)
    assert item.error is error


def test_a_split_item_fails_once_and_its_remaining_rows_are_dropped() -> None:
    bench = Bench(lanes=2)
    item, other = bench.submit("big", 40), bench.submit("other", 2)
    bench.ticks.run()
    bench.manual.finish(0, error=RuntimeError("bad row"))
    assert bench.answered == [item]
    bench.manual.finish_all()
    assert bench.answered == [item, other]
    assert sum(len(ran.rows()) for ran in bench.ran) == 16 + 2
    assert bench.batcher.n_waiting == 0


def test_an_executor_that_refuses_to_start_fails_the_batch_and_the_next_request_is_served() -> None:
    bench = Bench()
    bench.manual.refusal = OSError("no device")
    item = bench.submit("a")
    bench.ticks.run()
    assert isinstance(item.error, ExecutionFailed)
    bench.manual.refusal = None
    after = bench.submit("b")
    bench.ticks.run()
    bench.manual.finish()
    assert result_of(after) == [("b", 0)]


def test_a_callback_that_raises_harms_neither_batch_mates_nor_the_next_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(inline=True)

    def explode(item: Item) -> None:
        raise RuntimeError("caller's fault")

    bad = bench.make("bad")
    bad.on_done = explode
    before = bench.submit("before")
    bench.batcher.submit(bad)
    after = bench.submit("after")
    with caplog.at_level(logging.ERROR):
        bench.ticks.run()
    assert bench.answered == [before, after]
    assert "on_done of an item of model 'digits' failed" in caplog.text


def test_an_observer_that_raises_at_every_step_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(observer=RaisingObserver())
    first = bench.submit("first")
    bench.ticks.run()
    second = bench.submit("second")
    with caplog.at_level(logging.ERROR):
        assert bench.batcher.cancel(second)
        bench.manual.finish()
    assert result_of(first) == [("first", 0)]
    assert bench.answered == [second, first]
    assert [record.exc_info[1].args[0] for record in caplog.records if record.exc_info and record.exc_info[1]] == [
        "dispatched",
        "dropped",
        "finished",
    ]


def test_a_batch_that_is_finished_twice_is_a_bug_that_shows() -> None:
    bench = Bench()
    bench.submit("a")
    bench.ticks.run()
    ran = bench.manual.running[0]
    bench.manual.finish()
    with pytest.raises(KeyError):
        bench.batcher.finished(ran.batch, None, None)


# Cancels.


def test_a_cancelled_request_is_never_executed_and_leaves_batch_mates_unharmed() -> None:
    bench = Bench(inline=True)
    before, gone, after = bench.submit("before"), bench.submit("gone"), bench.submit("after")
    assert bench.batcher.cancel(gone)
    assert isinstance(gone.error, Cancelled)
    bench.ticks.run()
    assert bench.payloads(0) == ["before", "after"]
    assert bench.answered == [gone, before, after]
    assert not bench.batcher.cancel(gone)


def test_a_running_request_cannot_be_cancelled_and_is_answered() -> None:
    bench = Bench()
    item = bench.submit("a")
    bench.ticks.run()
    assert not bench.batcher.cancel(item)
    bench.manual.finish()
    assert result_of(item) == [("a", 0)]
    assert not bench.batcher.cancel(item)


def test_cancelling_a_partly_dispatched_item_drops_its_waiting_rows_and_answers_it_once() -> None:
    bench = Bench()
    item = bench.submit("big", 20)
    bench.ticks.run()
    assert bench.batcher.cancel(item)
    assert bench.batcher.n_waiting == 0
    bench.manual.finish()
    assert bench.answered == [item]
    assert isinstance(item.error, Cancelled)
    assert not item.parts, "an answered item keeps outputs alive that nobody reads"
    assert len(bench.ran) == 1


def test_callbacks_may_submit_cancel_and_poll() -> None:
    bench = Bench(inline=True)
    second = bench.make("second")
    third = bench.make("third")

    def go_on(item: Item) -> None:
        bench.answered.append(item)
        bench.batcher.submit(second)
        bench.batcher.submit(third)
        assert bench.batcher.cancel(third)
        bench.batcher.poll()

    first = bench.make("first")
    first.on_done = go_on
    bench.batcher.submit(first)
    bench.ticks.run()
    assert bench.answered == [first, third, second]


# Ends.


def test_draining_refuses_new_requests_and_answers_what_was_admitted_before_it_reports() -> None:
    bench = Bench()
    running = bench.submit("running")
    bench.ticks.run()
    queued = bench.submit("queued", 20)
    reports: list[int] = []
    bench.batcher.drain(lambda: reports.append(len(bench.answered)))
    with pytest.raises(Draining) as info:
        bench.submit("new")
    assert info.value.retry_after_s == pytest.approx(6.0)
    while bench.manual.running:
        assert not reports
        bench.manual.finish()
    assert bench.answered == [running, queued]
    assert reports == [2]


def test_draining_an_idle_batcher_reports_at_once() -> None:
    bench = Bench()
    reports: list[str] = []
    bench.batcher.drain(lambda: reports.append("drained"))
    assert reports == ["drained"]


def test_closing_a_group_lets_its_waiting_items_run_first() -> None:
    bench = Bench()
    other = Group("other", CostTable(SMALL_COSTS))
    items = [bench.submit(i, 8) for i in range(2)]
    bench.ticks.run()
    reports: list[int] = []
    bench.batcher.close_group(bench.group, on_idle=lambda: reports.append(len(bench.answered)))
    with pytest.raises(ModelUnloaded, match="model 'digits' is being unloaded"):
        bench.submit("new")
    bench.submit("elsewhere", group=other)
    bench.manual.finish()
    assert not reports
    bench.manual.finish()
    assert reports == [2]
    assert [item.error for item in items] == [None, None]


def test_closing_a_group_with_an_error_answers_its_waiting_items_and_lets_running_ones_finish() -> None:
    bench = Bench()
    running = bench.submit("running")
    bench.ticks.run()
    waiting = [bench.submit(i) for i in range(3)]
    reports: list[str] = []
    gone = ModelUnloaded("model 'digits' was unloaded")
    bench.batcher.close_group(bench.group, gone, on_idle=lambda: reports.append("idle"))
    assert bench.answered == waiting
    assert all(item.error is gone for item in waiting)
    assert not reports
    bench.manual.finish()
    assert result_of(running) == [("running", 0)]
    assert reports == ["idle"]
    assert bench.batcher.n_waiting == 0


def test_the_observer_sees_every_batch() -> None:
    bench = Bench(lanes=2)
    bench.submit("a", 30)
    bench.ticks.run()
    bench.manual.finish(1)
    bench.manual.finish(0, error=RuntimeError("fault"))
    bench.manual.finish_all()
    n_batches = len(bench.ran)
    assert bench.observer.dispatched_ids == list(range(1, n_batches + 1))
    assert sorted(bench.observer.finished_ids) == list(range(1, n_batches + 1))


def test_outputs_are_freed_with_their_items_without_the_cycle_collector() -> None:
    class Outputs(list[object]):
        """A list that can be watched."""

    bench = Bench()
    bench.submit("a")
    bench.ticks.run()
    batch = bench.manual.running.pop().batch
    bench.manual.ran.clear()
    outputs = Outputs([("a", 0)])
    alive = weakref.ref(outputs)
    gc.disable()
    try:
        bench.batcher.finished(batch, outputs, None)
        del outputs, batch
        assert alive() is not None
        bench.answered.clear()
        assert alive() is None
    finally:
        gc.enable()
