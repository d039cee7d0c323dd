"""TLS at a listening socket: how many handshakes are under way is known, and bounded.

A server of asyncio's (``create_server(ssl=...)``) tells nobody of a connection until its handshake is over, so that
callers who connect and say nothing hold as many as they like. So connections are accepted here. Where there is no room
for one more handshake, the address that has the most of them under way loses its oldest: who means to speak takes a few
round trips, a flood takes as long as it may.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from server.accepting import Accepting
from server.tls import HANDSHAKE_S, SHUTDOWN_S

__all__ = ["LEAST_HANDSHAKES", "Handshakes"]

#: Handshakes for which there is room however many connections are open: only who has had one can be told anything.
LEAST_HANDSHAKES = 16


class Handshakes:
    """Accepts connections and takes them through their handshakes to the protocols that ``make`` returns.

    ``room`` tells how many handshakes may be under way, given what else is open. Everything is called on the loop.
    """

    def __init__(
        self, make: Callable[[], asyncio.BaseProtocol], context: ssl.SSLContext, *, room: Callable[[], int]
    ) -> None:
        self._make = make
        self._context = context
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._accepting = Accepting(self.begin)
        #: Those under way by their callers' addresses, oldest first; no address without one.
        self._under_way: dict[str, OrderedDict[socket.socket, None]] = {}
        self._n = 0
        #: Holds the tasks: the loop itself does not.
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return self._n

    def listen(self, listener: socket.socket, *, backlog: int) -> None:
        """Let callers in."""
        self._accepting.listen(listener, backlog=backlog)

    def close(self) -> None:
        """Let nobody in any more. Handshakes that are under way go on."""
        self._accepting.close()

    def end_all(self) -> None:
        """End those that are under way."""
        for caller, of_address in list(self._under_way.items()):
            for accepted in list(of_address):
                self._end(accepted, caller)

    def begin(self, accepted: socket.socket) -> None:
        """Begin the handshake of a connection, and end another's if there is no room for it."""
        if self._n >= max(LEAST_HANDSHAKES, self._room()):
            caller = max(self._under_way, key=lambda each: len(self._under_way[each]))
            self._end(next(iter(self._under_way[caller])), caller)
        try:
            caller = str(accepted.getpeername()[0])
        except OSError:  # gone already
            accepted.close()
            return
        self._under_way.setdefault(caller, OrderedDict())[accepted] = None
        self._n += 1
        task = self._loop.create_task(self._shake(accepted, caller))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _shake(self, accepted: socket.socket, caller: str) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError:  # the caller speaks no TLS, or not as we do, or is late, or gone
            pass
        finally:
            self._forget(accepted, caller)

    def _end(self, accepted: socket.socket, caller: str) -> None:
        self._forget(accepted, caller)
        with suppress(OSError):
            # Who reads it, which is the handshake, finds its end there and closes it.
            accepted.shutdown(socket.SHUT_RDWR)

    def _forget(self, accepted: socket.socket, caller: str) -> None:
        of_address = self._under_way.get(caller)
        if of_address is None or accepted not in of_address:
            return
        del of_address[accepted]
        if not of_address:
            del self._under_way[caller]
        self._n -= 1
