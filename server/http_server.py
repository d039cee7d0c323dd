"""uvicorn as every process of the server runs it: our loop, our signals, our way of leaving.

How a process leaves. What had reached this machine before the signal is answered. What asks for a prediction later is
refused with 503 by whoever answers, and every answer is the last one of its connection. The door stays open for that,
as a caller who finds it closed learns nothing:

1. Connections that wait for an answer get it, and are closed.
2. Whoever waits in the kernel's queue is let in, in the same moment the door is closed.
3. Connections without a request are closed: at once, or after a moment where a request may be on its way.
4. When the grace period is over, who still waits is told so (503).
"""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, runtime_checkable

import uvicorn

from server.accepting import Door
from server.handshakes import Handshakes
from server.http_listening import BACKLOG
from server.settings import Settings

__all__ = ["HttpServer", "new_event_loop", "uvicorn_config"]

#: How often it is looked whether everybody has left.
_LOOK_S = 0.02
#: Seconds in which a handshake must be over that was under way when the server stopped.
_LAST_HANDSHAKES_S = 1.0
#: Seconds of the grace period that are kept for saying that it is over, and for leaving.
_FAREWELL_S = 0.5


@runtime_checkable
class Departing(Protocol):
    """A connection that knows whether somebody waits for an answer on it."""

    @property
    def is_answering(self) -> bool:
        """True while a caller waits."""

    def give_up(self) -> None:
        """Tell who waits that there will be no answer any more."""


def uvicorn_config(
    settings: Settings, *, app: Any = None, http: Any = "httptools", uds: str | None = None
) -> uvicorn.Config:
    """Return uvicorn's configuration. ``uds`` is the path of a Unix socket, in place of a port."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=http,
        ws="none",
        lifespan="off",
        # Ours has the request's id, and no query string.
        access_log=False,
        log_config=None,
        log_level=settings.log_level,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=settings.idle_timeout_s,  # type: ignore[arg-type]  # a delay of the loop's clock
        timeout_graceful_shutdown=max(1, round(settings.grace_s)),
        backlog=BACKLOG,
        uds=uds,
    )


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of the kind that the server runs on."""
    make = uvicorn.Config(None, loop="uvloop", log_config=None).get_loop_factory()  # type: ignore[arg-type]
    assert make is not None, "uvloop has one"
    return make()


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handling, which ends the process by the signal once it has stopped.

    ``grace_s``: seconds from the first signal until whoever still waits is given up. With ``tls``, handshakes count as
    connections, of which there may be ``most``.
    """

    def __init__(
        self, config: uvicorn.Config, *, grace_s: float, tls: ssl.SSLContext | None = None, most: int = 0
    ) -> None:
        super().__init__(config)
        self.grace_s = grace_s
        self._tls = tls
        self._most = most
        #: None: not started, or at a Unix socket.
        self.door: Door | Handshakes | None = None
        #: When stopping began, by the loop's clock.
        self._stopping_s: float | None = None

    @property
    def left_s(self) -> float:
        """What is left of the grace period, seconds; all of it before the first signal."""
        if self._stopping_s is None:
            return self.grace_s
        return max(0.0, self._stopping_s + self.grace_s - asyncio.get_running_loop().time())

    def stop_on_signals(self, on_stop: Callable[[], None]) -> None:
        """Stop gently at the first SIGTERM or SIGINT, at once at the second. ``on_stop`` is called at the first."""

        def signalled() -> None:
            if self._stopping_s is not None:
                self.force_exit = True
                return
            self._stopping_s = loop.time()
            _after_reading(loop, stop)

        def stop() -> None:
            self.should_exit = True
            on_stop()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signalled)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the handlers as they are."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        if sockets is None:
            await super().startup()
            return
        self.servers = []
        self.door = (
            Door(self._protocol)
            if self._tls is None
            else Handshakes(self._protocol, self._tls, room=lambda: self._most - len(self.server_state.connections))
        )
        for listener in sockets:
            self.door.listen(listener, backlog=self.config.backlog)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Leave in good order: see the module."""
        if self._stopping_s is None:
            self._stopping_s = asyncio.get_running_loop().time()
        here = self.server_state.connections
        waiting = {connection for connection in here if _is_answering(connection)}
        for connection in waiting:
            connection.shutdown()
        await self._until(lambda: not waiting & here)
        last = [connection for listener in sockets or [] for connection in _waiting_at(listener)]
        for server in self.servers:
            server.close()
        if self.door is not None:
            self.door.close()
        for listener in sockets or []:
            listener.close()
        await self._let_in(last)
        for connection in list(here):
            connection.shutdown()
        await self._until(lambda: not here and not self.server_state.tasks)
        if not self.force_exit:
            for connection in list(here):
                if isinstance(connection, Departing):
                    connection.give_up()
            for task in self.server_state.tasks:
                task.cancel(msg="the grace period is over")
            await asyncio.sleep(_LOOK_S)  # so that what was said leaves

    async def _let_in(self, last: list[socket.socket]) -> None:
        """Let those in who were accepted last, if their handshakes don't take too long."""
        if self.door is None:
            return
        for accepted in last:
            self.door.begin(accepted)
        door, loop = self.door, asyncio.get_running_loop()
        ends_s = loop.time() + _LAST_HANDSHAKES_S
        await self._until(lambda: not door or loop.time() > ends_s)
        door.end_all()

    async def _until(self, condition: Callable[[], bool]) -> None:
        least_s = min(_FAREWELL_S, self.grace_s / 10)
        while not (condition() or self.force_exit or self.left_s <= least_s):  # noqa: ASYNC110 - uvicorn has no event
            await asyncio.sleep(_LOOK_S)

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


def _after_reading(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call back once the loop has looked at every connection: what lies there now has been read, or begun to be."""
    # What is called soon is called after the next look, whether the present one is over or not: so the second time.
    loop.call_soon(loop.call_soon, callback)


def _waiting_at(listener: socket.socket) -> list[socket.socket]:
    """Accept who has connected: the kernel has told them that the server has them."""
    accepted = []
    with suppress(OSError):  # BlockingIOError: that was all
        while True:
            connection = listener.accept()[0]
            connection.setblocking(False)
            accepted.append(connection)
    return accepted


def _is_answering(connection: object) -> bool:
    return not isinstance(connection, Departing) or connection.is_answering
