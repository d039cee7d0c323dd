"""An executor in virtual time: batches take their cost, at a pace that changes, and fail where they are told to."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from server.batching import Batch, Batcher
from tests.fuzz.virtual_time import VirtualTime

__all__ = ["FAULTS", "Runner", "VirtualExecutor"]


class ServerFault(Exception):
    """What a graph raises through no row's fault."""


#: By the name that a move gives it: what the next batch ends with. ``start``: the executor does not take it.
FAULTS: dict[str, Callable[[], BaseException]] = {
    "batch": lambda: ServerFault("the graph failed"),
    "start": lambda: ServerFault("not started"),
    "server": lambda: ServerFault("out of memory"),
    "exit": lambda: SystemExit("the engine's thread was told to end"),
}


class Runner(Protocol):
    """What the executor asks of the run it is part of."""

    def starts(self, batch: Batch) -> float:
        """Note that a batch starts; return its cost in seconds, further runs for bad rows included."""

    def executes(self, batch: Batch, fault: BaseException | None) -> tuple[object, BaseException | None]:
        """Execute a batch and note what became of its rows: outputs, an error, or both."""


class VirtualExecutor:
    """Runs ``lanes`` batches at a time, small ones inside ``start``."""

    def __init__(self, time: VirtualTime, runner: Runner, *, lanes: int, inline_s: float, seed: int) -> None:
        self.batcher: Batcher | None = None
        self.lanes = lanes
        self.n_running = 0
        self.n_batches = 0
        self._time = time
        self._runner = runner
        self._inline_s = inline_s
        self._noise = random.Random(seed)
        #: What the next batches end with.
        self.faults: list[str] = []

    def free(self) -> int:
        return self.lanes - self.n_running

    def start(self, batch: Batch) -> None:
        assert self.batcher is not None
        cost_s = self._runner.starts(batch) * self._noise.uniform(0.8, 1.3)
        self.n_batches += 1
        kind = self.faults.pop() if self.faults else ""
        fault = FAULTS[kind]() if kind else None
        if kind == "start":
            self._runner.executes(batch, fault)
            assert fault is not None
            raise fault
        if batch.predicted_s <= self._inline_s:
            self.batcher.finished(batch, *self._runner.executes(batch, fault))
            return
        self.n_running += 1
        self._time.after(cost_s, lambda: self._finish(batch, fault))

    def _finish(self, batch: Batch, fault: BaseException | None) -> None:
        assert self.batcher is not None
        self.n_running -= 1
        batch.executed_s = self._time.now_s - batch.dispatched_s
        self.batcher.finished(batch, *self._runner.executes(batch, fault))
