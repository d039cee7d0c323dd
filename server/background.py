"""Work that nobody waits for: held on to until it ends, and logged if it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

__all__ = ["Background", "until_done"]

_log = logging.getLogger(__name__)


async def until_done(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait for what can't be taken back, cancelled or not; return the cancellation that came meanwhile."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


class Background:
    """Tasks that run beside the requests. The event loop itself keeps only weak references to a task."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin some work, and log what it fails with."""
        self.hold(asyncio.create_task(work))

    def hold(self, task: asyncio.Task[None]) -> None:
        """Do the same for a task that has been begun, for whoever cancels it or waits for it."""
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    async def cancel(self) -> None:
        """Cancel all that runs, and return when it has ended."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task failed", exc_info=error)
