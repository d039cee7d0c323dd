"""Run one builder process for each registration, and outlive whatever it does.

Theory of operation. ``Builder.build`` waits for its turn, starts the worker through ``launch`` and then waits for
whichever comes first:

1. the worker says how it ended (``done`` or ``failed``): that is the outcome; it then has ``exit_grace_s`` to leave;
2. the process ends without having said so: it crashed, by signal or by exit code;
3. what it says is no event: it is taken for crashed;
4. its processes hold more memory than ``build_memory_bytes``, or have more on disk than ``build_disk_bytes``;
5. ``build_timeout_s`` passes;
6. the caller is cancelled.

In every case, the good one too, all that is left of its processes is killed before ``build`` returns.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager

from server.build.errors import BuildFailed, BuildTimeout
from server.build.jailing import BuildJail, Confined
from server.build.limits import BuildLimits
from server.build.request import BuildRequest, Failed, Progress
from server.build.short_turns import ShortTurns
from server.build.source import Source
from server.build.worker_process import started

__all__ = ["WORKER_COMMAND", "Builder", "builder_environment"]

#: What builds. Tests pass the command of a double.
WORKER_COMMAND = (sys.executable, "-m", "server.build.worker")

#: What a builder may know of the server's environment. Not the settings, for they hold the token; no proxies, for
#: their addresses hold passwords.
_ENVIRONMENT_NAMES = frozenset(
    {"HOME", "LANG", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "ROWWISE_CACHE", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV"}
)
_ENVIRONMENT_PREFIXES = (
    "CUDA_",
    "KERAS_",
    "KMP_",
    "LC_",
    "MALLOC_",
    "MKL_",
    "NVIDIA_",
    "OMP_",
    "PYTHON",
    "TF_",
    "XLA_",
)


def builder_environment(parent: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what of the server's environment a builder gets: what Python, TensorFlow and devices need."""
    return {
        name: value
        for name, value in (os.environ if parent is None else parent).items()
        if name in _ENVIRONMENT_NAMES or name.startswith(_ENVIRONMENT_PREFIXES)
    }


class Builder:
    """Builds versions in processes of their own, at most ``limits.concurrent_builds`` at once.

    ``command`` is the worker's; ``environment`` all of its environment (the server's own, filtered, by default), where
    no ``jail`` says otherwise; without one it runs as the server does.
    """

    def __init__(
        self,
        *,
        limits: BuildLimits | None = None,
        command: Sequence[str] = WORKER_COMMAND,
        environment: Mapping[str, str] | None = None,
        jail: BuildJail | None = None,
    ) -> None:
        self._limits = limits or BuildLimits()
        self._command = tuple(command)
        self._environment = builder_environment() if environment is None else dict(environment)
        self._jail = jail
        self._turns = asyncio.Semaphore(self._limits.concurrent_builds)
        self._short_turns = ShortTurns()

    def change(self, limits: BuildLimits) -> None:
        """Build under other limits from now on; how many build at once stays as it is."""
        self._limits = limits
        if self._jail is not None:
            self._jail.change(limits)

    async def check(self, source: Source) -> None:
        """Say before anything is kept whether a version can be built from such a source. Errors: JailIncomplete."""
        if self._jail is not None:
            await asyncio.to_thread(self._jail.check, source)

    async def build(self, request: BuildRequest, on_progress: Callable[[Progress], None]) -> None:
        """Build one version; return when its artifact is complete in ``request.output_dir``.

        ``on_progress`` is called on the event loop. Cancelling kills the worker. Must be called on a thread that
        lives as long as the build, for the worker ends with it.
        Errors: BuildFailed; BuildTimeout; BuildMemoryExceeded; BuildDiskExceeded; BuildCrashed; JailIncomplete.
        """
        if self._turns.locked():
            on_progress(Progress("queued"))
        limits = self._limits
        async with (
            self._turns,
            self._confined(request) as confined,
            started(confined, request, niceness=limits.build_niceness) as worker,
        ):
            try:
                async with asyncio.timeout(limits.build_timeout_s) as timer:
                    with self._short_turns:
                        outcome = await worker.outcome(limits, on_progress)
            except TimeoutError:
                if not timer.expired():
                    raise
                worker.log("ran into build_timeout_s")
                raise BuildTimeout(request.name, request.version, limit_s=limits.build_timeout_s) from None
            if isinstance(outcome, Failed):
                raise BuildFailed(outcome.kind, outcome.message)
            await worker.left(limits.exit_grace_s)

    @asynccontextmanager
    async def _confined(self, request: BuildRequest) -> AsyncIterator[Confined]:
        if self._jail is None:
            yield Confined(command=self._command, environment=self._environment)
            return
        around = self._jail.around(request, self._command)
        # Shielded, both: what is given has to be taken back, whoever is cancelled.
        giving = asyncio.ensure_future(asyncio.to_thread(around.__enter__))
        try:
            yield await asyncio.shield(giving)
        finally:
            await asyncio.shield(_taken_back(giving, around))


async def _taken_back(giving: asyncio.Future[Confined], around: AbstractContextManager[Confined]) -> None:
    await asyncio.wait({giving})
    if giving.exception() is None:
        await asyncio.to_thread(around.__exit__, None, None, None)
