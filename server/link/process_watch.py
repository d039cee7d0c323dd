"""Noticing at once that another process has ended, however it did."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

__all__ = ["ProcessWatch"]


class ProcessWatch:
    """Calls ``on_exit`` once, on the event loop, when a process has ended; soon if it has ended already."""

    def __init__(self, pid: int, on_exit: Callable[[], None]) -> None:
        self.pid = pid
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self._pidfd: int | None = None
        self._soon: asyncio.Handle | None = None
        try:
            self._pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._soon = self._loop.call_soon(self._exited)
        else:
            self._loop.add_reader(self._pidfd, self._exited)

    def stop(self) -> None:
        """Stop watching. Harmless when it has ended, or was stopped."""
        if self._soon is not None:
            self._soon.cancel()
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _exited(self) -> None:
        self.stop()
        self._on_exit()
