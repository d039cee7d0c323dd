"""Several engines: as many batches at a time, each where nobody else is, and every request answered once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from server.batching import Batch, Batcher, CostTable, Group, Item, QueueLimits
from server.engine import EnginePool, LoadedModel
from server.engine.devices import devices_for
from server.protocol import Rows
from server.signature import ModelSignature, TensorSignature
from tests.engine.conftest import WriteArtifact
from tests.engine.post_box import PostBox

#: A batch that is to run in a thread, and one that runs where it is started.
SLOW_S, QUICK_S = 1.0, 50e-6


class Runner:
    """Runs batches one at a time, and says if it was asked for two. ``gate`` holds them back."""

    def __init__(self, gate: threading.Event) -> None:
        self._gate = gate
        self._mine = threading.Lock()
        self.ran: list[tuple[int, str]] = []

    def run(self, batch: Batch) -> Any:
        assert self._mine.acquire(blocking=False), "an engine runs one batch at a time"
        if batch.predicted_s == SLOW_S:
            assert self._gate.wait(60)
        self.ran.append((batch.id, threading.current_thread().name))
        self._mine.release()
        return [np.concatenate([item.payload[start:stop] for item, start, stop in batch.spans])]


class Rig:
    """A batcher over a pool of two engines; ticks and posts are run by hand."""

    def __init__(self) -> None:
        self.box = PostBox()
        self.pool = EnginePool(post=self.box)
        self.ticks: list[Any] = []
        self.batcher = Batcher(
            clock=lambda: 0.0, executor=self.pool, defer=self.ticks.append, limits=QueueLimits(max_rows=1000)
        )
        self.pool.start_threads(self.batcher.finished, backlog_s=lambda: 0.0)
        self.pool.grow(2)
        self.gate = threading.Event()
        self.runners = [Runner(self.gate), Runner(self.gate)]
        self.answers: dict[int, float] = {}

    def group(self, name: str, cost_s: float) -> Group:
        group = Group(name, CostTable({1: cost_s}), label=name)
        self.pool.attach(group, self.runners)  # type: ignore[arg-type]
        return group

    def submit(self, group: Group, number: int) -> None:
        def done(item: Item) -> None:
            assert number not in self.answers
            (part,) = item.parts
            self.answers[number] = part.outputs[0][part.offset]  # type: ignore[index]

        payload = np.array([float(number)])
        self.batcher.submit(Item(group, 1, payload, arrived_s=0.0, deadline_s=None, on_done=done))

    def tick(self) -> None:
        while self.ticks:
            self.ticks.pop(0)()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.gate.set()
    rig.pool.stop()


def test_two_batches_run_at_a_time_in_threads_of_their_own(rig: Rig) -> None:
    group = rig.group("slow", SLOW_S)
    for number in range(3):
        rig.submit(group, number)
    assert rig.pool.free() == 2
    rig.tick()
    assert rig.pool.free() == 0
    assert rig.batcher.n_running == 2
    assert rig.batcher.n_waiting == 1
    rig.gate.set()
    for _ in range(3):
        rig.box.run_one()
    assert rig.answers == {0: 0.0, 1: 1.0, 2: 2.0}
    threads = {name for runner in rig.runners for _, name in runner.ran}
    assert threads == {"engine 1", "engine 2"}
    assert [len({name for _, name in runner.ran}) for runner in rig.runners] == [1, 1]


def test_a_small_batch_runs_at_once_beside_one_that_is_with_a_thread(rig: Rig) -> None:
    rig.submit(rig.group("slow", SLOW_S), 0)
    rig.tick()
    quick = rig.group("quick", QUICK_S)
    for number in (1, 2, 3):
        rig.submit(quick, number)
    rig.tick()
    # By the engine that is free, and so never with the arrays of the one that runs.
    assert rig.answers == {1: 1.0, 2: 2.0, 3: 3.0}
    assert {name for _, name in rig.runners[1].ran} == {threading.current_thread().name}
    assert rig.runners[0].ran == []
    rig.gate.set()
    rig.box.run_one()
    assert rig.answers[0] == 0.0
    assert rig.pool.free() == 2


def test_many_mixed_batches_on_two_engines_are_each_answered_once_with_their_own_rows(rig: Rig) -> None:
    groups = [rig.group("slow", SLOW_S), rig.group("quick", QUICK_S)]
    rig.gate.set()
    for number in range(200):
        rig.submit(groups[number % 3 == 0], number)
        if number % 7 == 0:
            rig.tick()
    rig.tick()
    while len(rig.answers) < 200:
        rig.box.run_one()
    assert rig.answers == {number: float(number) for number in range(200)}
    assert rig.pool.free() == 2


def test_copies_of_a_model_answer_alike_and_do_not_share_their_arrays(write_artifact: WriteArtifact) -> None:
    signature = ModelSignature(
        inputs=(TensorSignature(name="x", dtype="float32", shape=(2,)),),
        outputs=(TensorSignature(name="y", dtype="float32", shape=(2,)),),
    )
    weights = tf.Variable([2.0, 3.0])
    artifact: Path = write_artifact(lambda x: {"y": x * weights}, signature, variables=[weights], buckets=(2,))
    copies = [LoadedModel.load(artifact, device=device) for device in (None, "/device:CPU:0")]
    group = Group("g", CostTable({2: 1.0}), label="m")
    rows = np.array([[1, 2], [3, 4]], np.float32)
    item = Item(group, 2, Rows(2, (rows,)), arrived_s=0.0, deadline_s=None, on_done=lambda _: None)
    answers = []
    for copy in copies:
        batch = Batch(1, group, 2, [(item, 0, 2)], n_rows=2, reason="", dispatched_s=0.0, predicted_s=1.0)
        ((_, runner),) = copy.groups.items()
        answers.append(runner.run(batch)[0])
        copy.close()
    np.testing.assert_array_equal(answers[0], rows * [2, 3])
    np.testing.assert_array_equal(answers[0], answers[1])


def test_devices_are_left_to_tensorflow_where_there_is_no_accelerator() -> None:
    if tf.config.list_logical_devices("GPU"):
        pytest.skip("this machine has accelerators")
    assert devices_for("auto") == [None]
    assert devices_for(3) == [None, None, None]


def test_engines_are_given_accelerators_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["a", "b"] if kind == "GPU" else ["c"])
    assert devices_for("auto") == ["/device:GPU:0", "/device:GPU:1"]
    assert devices_for(3) == ["/device:GPU:0", "/device:GPU:1", "/device:GPU:0"]
    assert devices_for(1) == [None]
