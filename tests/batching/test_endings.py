"""Faults, cancels and ends: each item is answered once, whatever happens to its batch, its caller or its group."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest

from server.batching import (
    Cancelled,
    CostTable,
    Draining,
    ExecutionFailed,
    Group,
    Item,
    ModelUnloaded,
)
from tests.batching.doubles import SMALL_COSTS, Bench, RaisingObserver, result_of

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


@pytest.mark.parametrize("step", ["start", "execute", "callback", "observer"])
def test_an_exception_in_a_hook_kills_the_batcher(step: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(observer=RaisingObserver() if step == "observer" else None)

    def explode(_: Item) -> None:
        raise RuntimeError("a hook's fault")

    for number in range(3):
        bad = bench.make(f"bad {number}")
        if step == "callback":
            bad.on_done = explode
        bench.manual.refusal = OSError("no device") if step == "start" else None
        bench.batcher.submit(bad)
        with caplog.at_level(logging.CRITICAL + 1):
            bench.ticks.run()
            while bench.manual.running:
                bench.manual.finish(0, error=RuntimeError("it failed") if step == "execute" else None)
                bench.ticks.run()
        bench.manual.refusal = None
        after = bench.submit(f"after {number}")
        bench.ticks.run()
        bench.manual.finish()
        assert result_of(after) == [(f"after {number}", 0)]
    assert bench.batcher.n_waiting == 0


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
