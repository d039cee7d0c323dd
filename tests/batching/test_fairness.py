"""Models that share an executor: what one sends more than its share is waited for by its own callers."""

from __future__ import annotations

from server.batching import CostTable, Group, Share
from tests.batching.doubles import Bench

FLAT = {1: 10e-3, 8: 10e-3}


def model(name: str, share: Share | None = None) -> Group:
    return Group(name, CostTable(FLAT), share=share)


def run_one(bench: Bench) -> str:
    """Let the running batch take its time, and return whose it was."""
    bench.clock.advance(10e-3)
    label = bench.manual.running[0].batch.group.label
    bench.manual.finish()
    return label


def test_a_flood_of_one_model_does_not_hold_up_the_callers_of_another() -> None:
    bench = Bench()
    flood, other = model("flood"), model("other")
    for number in range(800):
        bench.submit(number, group=flood)
    bench.ticks.run()
    for _ in range(20):
        run_one(bench)
    bench.submit("lone", group=other)
    bench.ticks.run()
    waited_for = [run_one(bench) for _ in range(3)]
    assert "other" in waited_for, "it waits for the batch that runs, and at most one more"


def test_two_floods_share_the_time_and_groups_of_one_model_do_not_get_more() -> None:
    bench = Bench()
    share = Share()
    groups = [model("a short", share), model("a long", share), model("b")]
    for group in groups:
        for number in range(800):
            bench.submit(number, group=group)
    bench.ticks.run()
    ran = [run_one(bench) for _ in range(60)]
    assert 28 <= ran.count("b") <= 32


def test_who_was_idle_has_not_saved_up_time() -> None:
    bench = Bench()
    early, late = model("early"), model("late")
    for number in range(1_600):
        bench.submit(number, group=early)
    bench.ticks.run()
    for _ in range(100):
        run_one(bench)
    for number in range(800):
        bench.submit(number, group=late)
    bench.ticks.run()
    ran = [run_one(bench) for _ in range(40)]
    assert 18 <= ran.count("early") <= 22


def test_it_is_the_time_that_is_shared_and_not_the_number_of_batches() -> None:
    bench = Bench()
    slow, quick = Group("slow", CostTable({1: 30e-3})), Group("quick", CostTable({1: 10e-3}))
    for number in range(200):
        bench.submit(number, group=slow)
        bench.submit(number, group=quick)
    bench.ticks.run()
    ran = []
    for _ in range(80):
        batch = bench.manual.running[0].batch
        bench.clock.advance(batch.predicted_s)
        ran.append(batch.group.label)
        bench.manual.finish()
    assert 55 <= ran.count("quick") <= 65


def test_a_batch_that_took_longer_than_it_costs_counts_as_long_as_it_took() -> None:
    bench = Bench()
    lies, honest = model("lies"), model("honest")
    for number in range(800):
        bench.submit(number, group=lies)
        bench.submit(number, group=honest)
    bench.ticks.run()
    ran = []
    for _ in range(60):
        batch = bench.manual.running[0].batch
        bench.clock.advance(30e-3 if batch.group is lies else 10e-3)
        ran.append(batch.group.label)
        bench.manual.finish()
    assert 42 <= ran.count("honest") <= 48
