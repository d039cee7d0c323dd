"""Several engines, one for each device: whichever is free takes the next batch.

Each engine is a thread with sessions of its own, which hold variables, executables and staging arrays of their own; so
engines share nothing that would have to be locked. On CPUs several engines share the cores: that pays for models that
leave cores idle, and costs their variables once for each engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from server.batching import Batch, Group
from server.engine.executor import EngineThread
from server.engine.model import GroupRunner

__all__ = ["EnginePool"]


class EnginePool:
    """Runs as many batches at a time as it has engines. An ``Executor`` of the batching core.

    ``post`` as for one engine. It begins with one, and may grow before the first group is attached.
    """

    def __init__(self, *, post: Callable[..., object]) -> None:
        self._post = post
        self._engines = [EngineThread(post=post, name="engine 1")]

    @property
    def n_engines(self) -> int:
        """How many batches may run at a time."""
        return len(self._engines)

    def start_threads(
        self,
        on_finished: Callable[[Batch, object, BaseException | None], None],
        *,
        backlog_s: Callable[[], float] | None = None,
    ) -> None:
        """Begin to execute; see ``EngineThread.start_thread``."""
        self._on_finished = on_finished
        self._backlog_s = backlog_s
        for engine in self._engines:
            engine.start_thread(on_finished, backlog_s=backlog_s)

    def grow(self, n_engines: int) -> None:
        """Have so many engines from now on, started ones; fewer than there are changes nothing."""
        while len(self._engines) < n_engines:
            engine = EngineThread(post=self._post, name=f"engine {len(self._engines) + 1}")
            engine.start_thread(self._on_finished, backlog_s=self._backlog_s)
            self._engines.append(engine)

    def stop(self) -> None:
        """Let the running batches end, then the threads."""
        for engine in self._engines:
            engine.stop()

    def attach(self, group: Group, runners: Sequence[GroupRunner]) -> None:
        """Say what runs a group's batches: one for each engine."""
        for engine, runner in zip(self._engines, runners, strict=True):
            engine.attach(group, runner)

    def detach(self, group: Group) -> None:
        """Forget a group; none of its batches may run any more."""
        for engine in self._engines:
            engine.detach(group)

    def free(self) -> int:
        """Return how many batches could start now."""
        return sum(engine.free() for engine in self._engines)

    def start(self, batch: Batch) -> None:
        """Let a free engine run a batch. Errors: KeyError if its group is not attached."""
        next(engine for engine in self._engines if engine.free()).start(batch)
