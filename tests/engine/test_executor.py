"""The engine's thread: one batch at a time, and no batch's error ends it."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import pytest

from server.batching import Batch, CostTable, Group
from server.engine import EngineThread
from tests.engine.post_box import PostBox


class ScriptedRunner:
    """Runs batches as it is told: an answer, or an error to raise."""

    def __init__(self, *outcomes: object) -> None:
        self.outcomes = list(outcomes)
        self.threads: list[str] = []

    def run(self, batch: Batch) -> object:
        self.threads.append(threading.current_thread().name)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Rig:
    def __init__(self) -> None:
        self.box = PostBox()
        self.engine = EngineThread(post=self.box, name="engine under test")
        self.finished: list[tuple[Batch, object, BaseException | None]] = []
        self.group = Group("g", CostTable({1: 1.0}), label="model 'm'")
        self.engine.start_thread(lambda *result: self.finished.append(result))

    def batch(self, number: int) -> Batch:
        return Batch(number, self.group, 1, [], n_rows=1, reason="test", dispatched_s=0.0, predicted_s=math.nan)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.engine.stop()
    assert not rig.engine._thread.is_alive()


@pytest.mark.parametrize("error", [ValueError("bad row"), MemoryError(), SystemExit(3), KeyboardInterrupt()])
def test_error_ends_its_own_batch_and_the_next_one_runs(rig: Rig, error: BaseException) -> None:
    rig.engine.attach(rig.group, ScriptedRunner(error, ["fine"]))  # type: ignore[arg-type]
    first, second = rig.batch(1), rig.batch(2)
    rig.engine.start(first)
    rig.box.run_one()
    rig.engine.start(second)
    rig.box.run_one()
    assert rig.finished == [(first, None, error), (second, ["fine"], None)]


def test_executor_is_busy_until_its_result_was_taken_on_the_driving_thread(rig: Rig) -> None:
    runner = ScriptedRunner(["a"])
    rig.engine.attach(rig.group, runner)  # type: ignore[arg-type]
    assert rig.engine.free() == 1
    rig.engine.start(rig.batch(1))
    assert rig.engine.free() == 0
    take = rig.box.posted.get(timeout=60)
    assert rig.engine.free() == 0
    assert rig.finished == []
    take()
    assert rig.engine.free() == 1
    assert runner.threads == ["engine under test"]


def test_batch_of_a_group_that_is_not_attached_is_refused_and_leaves_the_executor_free(rig: Rig) -> None:
    rig.engine.attach(rig.group, ScriptedRunner())  # type: ignore[arg-type]
    rig.engine.detach(rig.group)
    with pytest.raises(KeyError):
        rig.engine.start(rig.batch(1))
    assert rig.engine.free() == 1


def test_thread_ends_when_the_event_loop_is_gone(rig: Rig) -> None:
    rig.engine.attach(rig.group, ScriptedRunner(["nobody waits"]))  # type: ignore[arg-type]
    rig.box.is_closed = True
    rig.engine.start(rig.batch(1))
    assert rig.box.refused.wait(60)
    rig.engine._thread.join(60)
    assert not rig.engine._thread.is_alive()


def test_stop_lets_what_was_handed_over_finish_first(rig: Rig) -> None:
    rig.engine.attach(rig.group, ScriptedRunner(["done"]))  # type: ignore[arg-type]
    rig.engine.start(rig.batch(1))
    rig.engine.stop()
    rig.box.run_one()
    assert [outputs for _, outputs, _ in rig.finished] == [["done"]]


def test_stop_of_a_thread_that_never_ran_returns() -> None:
    EngineThread(post=PostBox()).stop()
