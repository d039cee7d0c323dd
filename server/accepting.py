"""Connections are accepted here: all that have come, up to a number, at each turn of the event loop.

uvloop's own servers (``create_server``) accept one connection at a turn. Where a turn holds a batch of a model, whoever
comes with others waits for as many batches as there are others before him, and each of those holds the one request that
had been let in: a server whose callers connect anew for each request would never batch.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

__all__ = ["Accepting", "Door"]

#: Connections that are accepted before others are served again.
_AT_ONCE = 32
#: Seconds without accepting where the machine has no descriptors or memory left.
_REST_S = 0.1
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Accepting:
    """Hands each connection that comes to ``begin``, which owns it then. Everything is called on the loop."""

    def __init__(self, begin: Callable[[socket.socket], None]) -> None:
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._listeners: list[socket.socket] = []

    def listen(self, listener: socket.socket, *, backlog: int) -> None:
        """Let callers in."""
        listener.listen(backlog)
        listener.setblocking(False)
        self._listeners.append(listener)
        self._loop.add_reader(listener, self._accept, listener)

    def close(self) -> None:
        """Let nobody in any more. The sockets belong to whoever made them, and stay open."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            self._loop.remove_reader(listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _address = listener.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._loop.remove_reader(listener)
                    self._loop.call_later(_REST_S, self._resume, listener)
                return
            accepted.setblocking(False)
            self._begin(accepted)

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)


class Door:
    """Lets connections in as they are, in the clear, each to a protocol that ``make`` returns."""

    def __init__(self, make: Callable[[], asyncio.BaseProtocol]) -> None:
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._accepting = Accepting(self.begin)
        #: Holds the tasks: the loop itself does not.
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Return how many are about to have their protocol."""
        return len(self._tasks)

    def listen(self, listener: socket.socket, *, backlog: int) -> None:
        """Let callers in."""
        self._accepting.listen(listener, backlog=backlog)

    def close(self) -> None:
        """Let nobody in any more."""
        self._accepting.close()

    def begin(self, accepted: socket.socket) -> None:
        """Let in who has been accepted."""
        task = self._loop.create_task(self._let_in(accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end_all(self) -> None:
        """Nothing is under way for longer than a turn of the loop."""

    async def _let_in(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, accepted)
        except OSError:  # gone already
            accepted.close()
