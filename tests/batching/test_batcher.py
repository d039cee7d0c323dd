"""What a shell around the batcher sees, case by case."""

from __future__ import annotations

import pytest

from server.batching import (
    CostTable,
    Group,
    Reason,
)
from tests.batching.doubles import SMALL_COSTS, Bench, result_of


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


def test_when_a_batch_can_begin_is_known_from_the_costs_of_those_that_run() -> None:
    bench = Bench(lanes=2, costs={1: 1.0, 8: 2.4})
    assert bench.batcher.free_in_s == 0.0
    bench.submit("one")
    bench.ticks.run()
    assert bench.batcher.free_in_s == 0.0, "an executor is free"
    bench.clock.advance(0.5)
    for number in range(8):
        bench.submit(number)
    bench.ticks.run()
    bench.clock.advance(0.25)
    assert bench.batcher.free_in_s == 0.25, "the first of them ends then"
    bench.manual.finish(0)
    assert bench.batcher.free_in_s == 0.0
    bench.submit("another", 8)
    bench.ticks.run()
    assert bench.batcher.free_in_s == pytest.approx(2.15)
    bench.clock.advance(9.0)
    assert bench.batcher.free_in_s == 0.0, "later than was predicted, it may end at any moment"


def test_a_server_whose_batches_take_longer_than_their_costs_knows_that_it_is_busy() -> None:
    bench = Bench()
    bench.submit("first", 8)
    bench.ticks.run()
    for turn in range(40):
        bench.submit(turn, 8)
        bench.ticks.run()
        bench.clock.advance(4.8)  # twice what it costs: the other half goes to what the server does beside it
        bench.manual.finish()
    running = bench.manual.running[0].batch
    assert running.load == pytest.approx(1.0, rel=0.1), "eight rows in 4.8 s are all that it can do"


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
