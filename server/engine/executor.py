"""Executing batches: small ones where they are, others in a thread, so that the event loop never waits for long.

Handing a batch to a thread and its result back costs two wake-ups, and the interpreter lock changes hands four
times; while the event loop is busy, each change waits for its turn. A batch that takes less than that runs at once
on the event loop's own thread, as long as little waits behind it.

One batch at a time either way: a second one that stood ready would have been planned too early, with fewer rows than
the queue holds when the first has finished.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from server.batching import Batch, ExampleFailed, Group
from server.batching.costs import TURN_S
from server.engine.model import GroupRunner

__all__ = ["INLINE_S", "EngineThread"]

#: Batches whose graph's measured cost is at most this run on the event loop's thread. With 32 callers of the
#: 64-256-256-10 MLP on one core a thread served three quarters of the requests that it serves inline; at 128 nine
#: tenths, where its largest bucket takes half a millisecond.
INLINE_S = 1e-3
#: With more work than this behind it, a small batch goes to the thread too: the event loop has to read and answer.
_INLINE_BACKLOG_S = 2e-3
#: What runs in the thread waits for the interpreter lock, up to 5 ms each time; shorter times than this tell of the
#: lock rather than of the model. Were they believed, a small model would look slow, leave the event loop for the
#: thread, and so look slower still. What runs on the event loop is mostly staging, and tells as little.
_TELLING_S = 20e-3


class EngineThread:
    """Runs batches of any number of models, one at a time. An ``Executor`` of the batching core.

    ``post`` hands a function to the thread that drives the batcher, once for each batch; ``on_finished`` is the
    batcher's ``finished``. Everything but the thread's own loop is called on the driving thread.
    """

    def __init__(self, *, post: Callable[..., object], name: str = "engine") -> None:
        self._post = post
        self._on_finished: Callable[[Batch, object, BaseException | None], None] = _not_connected
        self._runners: dict[Group, GroupRunner] = {}
        self._batches: queue.SimpleQueue[tuple[Batch, GroupRunner] | None] = queue.SimpleQueue()
        #: 1 exactly while no batch is with the thread.
        self._free = 1
        self._backlog_s: Callable[[], float] = _no_backlog
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start_thread(
        self,
        on_finished: Callable[[Batch, object, BaseException | None], None],
        *,
        backlog_s: Callable[[], float] | None = None,
    ) -> None:
        """Begin to execute. ``on_finished`` is called on the driving thread.

        ``backlog_s`` says how many seconds of work wait; without it everything runs in the thread.
        """
        self._on_finished = on_finished
        if backlog_s is not None:
            self._backlog_s = backlog_s
        self._thread.start()

    def stop(self) -> None:
        """Let the running batch end, then the thread."""
        self._batches.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def attach(self, group: Group, runner: GroupRunner) -> None:
        """Say what runs a group's batches."""
        self._runners[group] = runner

    def detach(self, group: Group) -> None:
        """Forget a group; none of its batches may run any more."""
        del self._runners[group]

    def free(self) -> int:
        """Return how many batches could start now: 1 or 0."""
        return self._free

    def start(self, batch: Batch) -> None:
        """Run a small batch, hand another one to the thread. Errors: KeyError if its group is not attached."""
        runner = self._runners[batch.group.home or batch.group]
        if batch.predicted_s - TURN_S <= INLINE_S and self._backlog_s() <= _INLINE_BACKLOG_S:
            self._run_here(batch, runner)
            return
        self._free = 0
        self._batches.put((batch, runner))

    def _run_here(self, batch: Batch, runner: GroupRunner) -> None:
        self._on_finished(batch, *_executed(batch, runner))

    def _loop(self) -> None:
        post, finish, take = self._post, self._finish, self._batches.get
        while (work := take()) is not None:
            batch, runner = work
            began_s = time.perf_counter()
            outputs, failure = _executed(batch, runner)
            took_s = time.perf_counter() - began_s
            if took_s >= _TELLING_S:
                batch.executed_s = took_s
            try:
                post(finish, batch, outputs, failure)
            except RuntimeError:
                return  # the event loop is closed: nobody waits for an answer any more
            del work, batch, runner, outputs, failure

    def _finish(self, batch: Batch, outputs: object, failure: BaseException | None) -> None:
        self._free = 1
        self._on_finished(batch, outputs, failure)


def _executed(batch: Batch, runner: GroupRunner) -> tuple[Any, BaseException | None]:
    """Run a batch, whatever comes of it: outputs, an error, or outputs and the errors of some rows."""
    try:
        try:
            return runner.run(batch), None
        except ExampleFailed as failure:
            return runner.run_isolated(batch, failure)
    except BaseException as error:  # noqa: BLE001 - it is the batch's error, and the thread lives on
        return None, error


def _no_backlog() -> float:
    """Nobody says what waits: nothing is small enough to run at once."""
    return math.inf


def _not_connected(_batch: Batch, _outputs: object, _error: BaseException | None) -> None:
    raise AssertionError("a batch finished before start_thread was called")
