"""What is remembered of batches, and the sentences about them."""

from __future__ import annotations

import time

import pytest

from server.batch_log import BatchLog
from server.batching import CostTable, Group, QueueFull
from server.hosting import GroupKey
from tests.batching.doubles import Bench


def bench_with_log() -> tuple[Bench, BatchLog]:
    log = BatchLog()
    bench = Bench(observer=log, costs={1: 1e-3, 8: 2e-3, 64: 10e-3})
    bench.group = Group(GroupKey("digits", 3, "predict", (16,)), bench.group.costs)
    bench.clock.now_s = time.monotonic()
    return bench, log


def test_a_batch_is_remembered_with_its_rows_and_waits() -> None:
    bench, log = bench_with_log()
    bench.submit("a", 3)
    bench.clock.advance(4e-3)
    bench.submit("b", 2)
    bench.ticks.run()
    bench.clock.advance(2.5e-3)
    bench.manual.finish()
    (batch,) = log.recent()
    assert {
        name: batch[name] for name in ("id", "model", "version", "entry", "lengths", "requests", "rows", "bucket")
    } == {
        "id": 1,
        "model": "digits",
        "version": 3,
        "entry": "predict",
        "lengths": [16],
        "requests": 2,
        "rows": 5,
        "bucket": 8,
    }
    assert batch["padding"] == 3
    assert batch["error"] is None
    assert [batch[name] for name in ("longest_wait_ms", "shortest_wait_ms", "predicted_ms", "took_ms")] == (
        pytest.approx([4.0, 0.0, 2.0, 2.5])
    )
    assert abs(batch["started_at_s"] - time.time()) < 60


def test_it_says_why_then_and_why_that_size() -> None:
    bench, log = bench_with_log()
    bench.submit("a", 5)
    bench.ticks.run()
    bench.manual.finish()
    bench.submit("urgent", 1, timeout_s=1.5e-3)
    bench.submit("many", 70)
    bench.ticks.run()
    bench.manual.finish()
    second, first = log.recent()[-2:]
    assert first["reason"] == "oldest"
    assert "waited longest" in first["why_then"]
    assert first["why_this_size"] == (
        "5 rows waited at 0% load, and this makes all callers wait least: bucket 8 takes 2 ms, 400 µs a row "
        "(bucket 1: 1 ms a row; bucket 64: 2 ms a row)"
    )
    assert second["reason"] == "shed"
    assert "given up" in second["why_then"]
    assert second["why_this_size"].startswith("70 rows waited; bucket 8 takes 2 ms, 250 µs a row (bucket ")


def test_a_batch_that_failed_names_its_error_and_keeps_nothing_of_it() -> None:
    bench, log = bench_with_log()
    bench.submit("a")
    bench.ticks.run()
    bench.manual.finish(error=QueueFull("secret input 42", retry_after_s=1.0))
    (batch,) = log.recent()
    assert batch["error"] == "QueueFull"
    assert "secret" not in str(batch)


def test_the_newest_come_first_and_models_can_be_told_apart() -> None:
    bench, log = bench_with_log()
    other = Group(GroupKey("other", 1, "predict", ()), CostTable({1: 1.0}))
    for group in (bench.group, other, bench.group):
        bench.submit("x", group=group)
        bench.ticks.run()
        bench.manual.finish()
    assert [batch["id"] for batch in log.recent()] == [3, 2, 1]
    assert [batch["id"] for batch in log.recent(model="digits")] == [3, 1]
    assert [batch["id"] for batch in log.recent(limit=1)] == [3]
    assert log.recent(model="unknown") == []


def test_only_the_last_batches_are_kept() -> None:
    bench, log = bench_with_log()
    for _ in range(600):
        bench.submit("x")
        bench.ticks.run()
        bench.manual.finish()
    assert len(log.recent()) == 512


def test_it_tells_how_long_the_last_requests_took_while_somebody_wants_to_know() -> None:
    bench, log = bench_with_log()

    def ran() -> None:
        bench.submit("a", 5)
        bench.clock.advance(4e-3)
        bench.submit("b", 3)
        bench.ticks.run()
        bench.clock.advance(2.5e-3)
        bench.manual.finish()

    ran()
    assert log.latencies_s(since_s=0.0, most=100) == {}, "nobody had asked for them"
    log.keep_waits(keeps=True)
    since_s = bench.clock.now_s
    ran()
    key = ("digits", 3, "predict")
    assert log.latencies_s(since_s=since_s, most=100)[key] == pytest.approx([6.5e-3, 2.5e-3])
    assert log.latencies_s(since_s=bench.clock.now_s + 1, most=100) == {}
    ran()
    assert len(log.latencies_s(since_s=since_s, most=100)[key]) == 4
    assert len(log.latencies_s(since_s=since_s, most=1)[key]) == 2, "whole batches, the newest first"
    log.keep_waits(keeps=False)
    ran()
    assert len(log.latencies_s(since_s=since_s, most=100)[key]) == 4


def test_it_says_that_a_batch_waited_for_callers_who_return() -> None:
    bench, log = bench_with_log()
    bench.submit("a")
    bench.ticks.run()
    bench.ran[0].batch.held_s = 2.5e-4
    bench.manual.finish()
    (batch,) = log.recent()
    assert batch["held_ms"] == pytest.approx(0.25)
    assert "it had waited 250 µs for callers who were just answered" in batch["why_then"]
