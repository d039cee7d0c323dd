"""A shadow takes its share of answered batches, runs when nothing else does, and harms nobody."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from server.batching import Batch, CostTable, Group, Item
from server.hosting import GroupKey
from server.protocol import Rows
from server.shadow import Shadow, ShadowRunner
from server.signature import ModelSignature, TensorSignature

SIGNATURE = ModelSignature(
    inputs=(TensorSignature(name="x", dtype="float32", shape=()),),
    outputs=(TensorSignature(name="y", dtype="float32", shape=()),),
)
LIVE = Group(GroupKey("m", 1, "predict", ()), CostTable({1: 1.0, 8: 2.0}))


class Doubling:
    """A candidate's runner: doubles, fails on 13, and is one off on 7."""

    def __init__(self) -> None:
        self.costs_s = {2: 1e-3}

    def run(self, batch: Batch) -> list[np.ndarray]:
        x = np.array([item.payload.columns[0][start] for item, start, _ in batch.spans], np.float32)  # type: ignore[attr-defined]
        if 13 in x:
            raise RuntimeError("unlucky")
        y = np.full(batch.bucket, -1, np.float32)
        y[: batch.n_rows] = 2 * x + (x == 7)
        return [y]


class Rig:
    """A shadow runner whose event loop is driven by hand."""

    def __init__(self, share: float) -> None:
        self.posted: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = queue.SimpleQueue()
        self.idle = True
        self.told: list[tuple[str, int, int]] = []
        self.runner = ShadowRunner(
            post=lambda function, *args: self.posted.put((function, args)),
            is_idle=lambda: self.idle,
            on_compared=lambda _shadow, *what: self.told.append(what),
        )
        candidate = Group(GroupKey("m", 2, "predict", ()), CostTable({2: 1e-3}))
        runner: Any = Doubling()
        self.shadow = Shadow("m", 2, share, {("predict", ()): (candidate, runner)}, {"predict": SIGNATURE})
        self.runner.start(self.shadow)

    def answered(self, *values: float, error: Exception | None = None) -> None:
        """Let a live batch of these rows end."""
        x = np.array(values, np.float32)
        item = Item(LIVE, len(x), Rows(len(x), (x,)), arrived_s=0.0, deadline_s=None, on_done=lambda item: None)
        spans = [(item, 0, len(x))]
        batch = Batch(1, LIVE, 8, spans, n_rows=len(x), reason="", dispatched_s=1.0, predicted_s=1.0)
        batch.finished_s = 2.0
        outputs = [np.concatenate([2 * x, np.zeros(8 - len(x), np.float32)])]
        self.runner.finished(batch, spans, outputs, error)

    def run_one(self) -> None:
        function, args = self.posted.get(timeout=20)
        function(*args)


@pytest.fixture
def rig() -> Rig:
    return Rig(1.0)


def test_share_of_the_batches_is_taken(rig: Rig) -> None:
    rig.shadow.share = 0.25
    for number in range(8):
        rig.answered(20.0 + number)
    for _ in range(2):
        rig.run_one()
    assert rig.shadow.to_json()["batches"] == 2
    assert rig.told == [("compared", 1, 0)] * 2


def test_batch_larger_than_the_candidates_buckets_is_run_in_parts_and_rows_that_differ_are_counted(rig: Rig) -> None:
    rig.answered(1, 2, 7, 4, 5)
    rig.run_one()
    report = rig.shadow.to_json()
    assert (report["rows"], report["rows_differing"], report["outputs"]["y"]["max_abs"]) == (5, 1, 1.0)
    assert report["time_ratio"] is not None


def test_shadow_that_raises_is_counted_and_goes_on(rig: Rig) -> None:
    rig.answered(13)
    rig.run_one()
    rig.answered(1)
    rig.run_one()
    report = rig.shadow.to_json()
    assert (report["failed"], report["last_error"], report["batches"]) == (1, "RuntimeError: unlucky", 1)


def test_nothing_runs_while_live_rows_wait_and_what_is_too_much_is_dropped(rig: Rig) -> None:
    rig.idle = False
    for number in range(6):
        rig.answered(float(number))
    assert rig.posted.empty()
    assert rig.shadow.to_json()["dropped"] == 2
    rig.idle = True
    rig.answered(6)  # its end finds the executor idle; there is no room for it itself
    for _ in range(4):
        rig.run_one()
    assert rig.shadow.to_json()["batches"] == 4


def test_failed_batches_and_the_shadows_own_version_are_left_alone(rig: Rig) -> None:
    rig.answered(1, error=RuntimeError("live"))
    assert not rig.shadow.pending
    assert rig.posted.empty()


def test_stopping_waits_for_the_batch_that_runs(rig: Rig) -> None:
    rig.answered(1)
    rig.answered(2)
    stopped: list[bool] = []
    rig.runner.stop(rig.shadow, lambda: stopped.append(True))
    assert (stopped, rig.runner.any) == ([], False)
    rig.run_one()
    assert stopped == [True]
    assert rig.shadow.to_json()["batches"] == 1
