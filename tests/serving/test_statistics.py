"""What is counted of requests and batches."""

from __future__ import annotations

import numpy as np
import pytest

from server.batching import Batch, CostTable, ExampleFailed, Group, QueueFull, RowErrors
from server.hosting import GroupKey
from server.serving import Answer
from server.statistics import Statistics
from tests.serving.test_served_model import FIXED, Rig, fixed


@pytest.fixture
def rig() -> Rig:
    return Rig(FIXED)


def test_a_request_counts_once_with_its_wait_and_its_whole_time(rig: Rig) -> None:
    rig.ask(fixed(1))
    rig.clock.advance(0.25)
    rig.ticks.run()
    rig.clock.advance(0.5)
    rig.executor.finish()
    counted = rig.model.statistics
    assert (counted.n_succeeded, counted.n_failed) == (1, 0)
    assert (counted.queued_s, counted.succeeded_s) == pytest.approx((0.25, 0.75))


def test_a_failed_a_cancelled_and_a_refused_request_count_as_failed() -> None:
    rig = Rig(FIXED, max_rows=1)
    rig.ask(fixed(1))
    rig.ticks.run()
    rig.executor.finish(error=ValueError("bad"))
    rig.ask(fixed(1)).cancel()
    rig.ask(fixed(1))
    with pytest.raises(QueueFull):
        rig.ask(fixed(2))
    counted = rig.model.statistics
    assert (counted.n_succeeded, counted.n_failed) == (0, 3)


class Taker:
    """Notes how requests that were admitted together ended."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def ran(self, tag: object, _outputs: object, _start: int, _stop: int, _queue_s: float) -> None:
        self.told.append(tag)

    def ended(self, tag: object, answer: Answer) -> None:
        self.told.append((tag, type(answer.error)))


def test_requests_that_are_admitted_together_count_each() -> None:
    rig = Rig(FIXED, max_rows=2)
    taker = Taker()
    rig.model.predict_many(
        fixed(1, 2, 3), [1, 1, 1], [0, 1, 2], tags="abc", callers=[None] * 3, timeout_s=None, spent_s=0.0, taker=taker
    )
    assert taker.told == [("c", QueueFull)]
    rig.clock.advance(0.25)
    rig.ticks.run()
    rig.clock.advance(0.5)
    while rig.executor.running:
        rig.executor.finish()
    counted = rig.model.statistics
    assert (taker.told[1:], counted.n_succeeded, counted.n_failed) == (["a", "b"], 2, 1)
    assert counted.queued_s >= 0.5
    assert counted.succeeded_s >= 1.5


def batch(n_rows: int, *, took_s: float, staged_s: float = 0.001, graph_s: float = 0.002) -> Batch:
    group = Group(GroupKey("m", 1, "predict", ()), CostTable({4: 0.001}))
    ran = Batch(1, group, 4, [], n_rows=n_rows, reason="", dispatched_s=10.0, predicted_s=0.001)
    ran.finished_s = 10.0 + took_s
    ran.staged_s, ran.graph_s = staged_s, graph_s
    return ran


def test_batches_count_by_their_rows_with_the_time_of_each_step() -> None:
    statistics = Statistics()
    counted = statistics.open("m", 1, "predict")
    statistics.finished(batch(3, took_s=0.004), None)
    statistics.finished(batch(3, took_s=0.004), None)
    statistics.finished(batch(1, took_s=0.003), None)
    assert (counted.n_rows, counted.n_batches, sorted(counted.by_rows)) == (7, 3, [1, 3])
    of_three = counted.by_rows[3]
    assert of_three.n == 2
    assert (of_three.staging_s, of_three.graph_s, of_three.unstaging_s) == pytest.approx((0.002, 0.004, 0.002))
    assert counted.last_ended_s > 1.6e9


def test_rows_that_failed_are_no_inferences_and_a_failed_batch_is_no_execution() -> None:
    statistics = Statistics()
    counted = statistics.open("m", 1, "predict")
    statistics.finished(batch(3, took_s=0.004), RowErrors({1: ExampleFailed("row 1")}, frozenset()))
    statistics.finished(batch(3, took_s=0.004), ValueError("all of it"))
    assert (counted.n_rows, counted.n_batches) == (2, 1)


def test_what_is_loaded_again_begins_at_nothing_and_keeps_its_counts_when_the_old_one_goes() -> None:
    statistics = Statistics()
    old = statistics.open("m", 1, "predict")
    new = statistics.open("m", 1, "predict")
    statistics.close("m", 1, "predict", old)
    statistics.finished(batch(2, took_s=0.004, graph_s=np.nan), None)
    assert (old.n_rows, new.n_rows) == (0, 2)
    assert new.in_batches.graph_s == 0
    assert new.by_rows[2].graph_s == pytest.approx(0.004)
    statistics.close("m", 1, "predict", new)
    statistics.finished(batch(2, took_s=0.004), None)
    assert new.n_rows == 2
