"""The gRPC server: our own HTTP/2 on the event loop carries the services, with bytes in and bytes out.

gRPC's own server took five to six times the processor time for each call (docs/grpc.md), and what it does for it is not
needed: a call is a few frames.

How it leaves. Streams read no further and end when what they had is answered; for a moment new calls are told that the
server stops, then connections take no more. Those that run have the grace period.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial

from server.accepting import Door
from server.handshakes import Handshakes
from server.web.comeback import Comeback
from server.web.front import Front
from server.web.http2.connection import Connection
from server.web.http2.frames import END_HEADERS, END_STREAM, Kind, frame
from server.web.http2.header_blocks import Headers
from server.web.http2.stream import OVER, Handler, Stream
from server.web.interfaces import Catalog
from server.web.rpc.call import Method
from server.web.rpc.exchange import Exchange
from server.web.rpc.framing import NOT_GRPC
from server.web.rpc.plain_call import MakeExchange, PlainCall
from server.web.rpc.plain_heads import PlainHead, plain_head
from server.web.rpc.services import Services

__all__ = ["RpcServer"]

#: Seconds in which who had sent a call before it knew is told that the server stops.
_LAST_CALL_S = 0.1
#: How often it is looked whether everybody has left.
_LOOK_S = 0.01
#: Methods that are remembered by their paths. There are fewer; strangers can make up others.
_MAX_PATHS = 256


class RpcServer:
    """Serves over gRPC. ``connections``: most that are open at once. Everything is called on the event loop."""

    def __init__(self, front: Front, catalog: Catalog, *, connections: int) -> None:
        self._front = front
        self._most = connections
        self._leaving = asyncio.Event()
        self._services = Services(front, catalog, self._leaving)
        self._exchange: MakeExchange = partial(Exchange, front, self._leaving)
        self._methods: dict[bytes, Method] = {}
        #: Those that are open, each with who is told when its callers are back.
        self._connections: dict[Connection, Comeback] = {}
        #: None: not started.
        self.door: Door | Handshakes | None = None
        self._listener: socket.socket | None = None

    async def start(self, listener: socket.socket, *, tls: ssl.SSLContext | None = None) -> None:
        """Serve at a socket that is bound. ``tls`` has to offer "h2" to clients; None: in the clear."""
        self._listener = listener
        self.door = (
            Door(self._connection)
            if tls is None
            else Handshakes(self._connection, tls, room=lambda: self._most - len(self._connections))
        )
        self.door.listen(listener, backlog=_BACKLOG)

    async def stop(self, grace_s: float) -> None:
        """Leave, see the module, within ``grace_s`` seconds."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + grace_s
        self._leaving.set()
        await asyncio.sleep(min(_LAST_CALL_S, grace_s / 10))
        if self.door is not None and self._listener is not None:
            self.door.close()
            self._listener.close()
            self.door.end_all()
            while self.door and loop.time() < ends_s:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(_LOOK_S)
        for connection in list(self._connections):
            connection.leave()
        while self._connections and loop.time() < ends_s:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(_LOOK_S)
        for connection in list(self._connections):
            connection.close()

    def _connection(self) -> asyncio.Protocol:
        if len(self._connections) >= self._most:
            return _NoRoom()
        return Connection(
            asyncio.get_running_loop(),
            self._begin,
            write_timeout_s=self._front.settings.write_timeout_s,
            on_open=self._opened,
            on_close=self._closed,
        )

    def _opened(self, connection: Connection) -> None:
        self._connections[connection] = Comeback()

    def _comeback(self, connection: Connection) -> Comeback:
        return self._connections.get(connection) or Comeback()

    def _closed(self, connection: Connection) -> None:
        comeback = self._connections.pop(connection, None)
        if comeback is not None:
            comeback.gone()

    def _begin(self, connection: Connection, stream: Stream, headers: Headers) -> Handler:
        meaning: PlainHead | None = headers.meaning
        if meaning is not None and meaning.holds:
            return PlainCall(self._front, connection, stream, meaning, self._exchange, self._comeback(connection))
        path = headers.get(b":path", b"")
        if headers.get(b":method") != b"POST" or not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            last = frame(Kind.HEADERS, END_HEADERS | END_STREAM, stream.id, NOT_GRPC)
            connection.send(stream, b"", None, last)
            return OVER
        method = self._methods.get(path)
        if method is None:
            method = self._services.find(path.decode("latin-1"))
            if len(self._methods) < _MAX_PATHS:
                self._methods[path] = method
        headers.meaning = plain_head(self._front, method, headers, connection.peer)
        if headers.meaning is not None:
            return PlainCall(
                self._front, connection, stream, headers.meaning, self._exchange, self._comeback(connection)
            )
        exchange = self._exchange(connection, stream, headers, method, None)
        exchange.begin()
        return exchange


#: Connections that the kernel holds until they are accepted.
_BACKLOG = 1_024


class _NoRoom(asyncio.Protocol):
    """Closes a connection for which there is no room: its caller finds the server unavailable."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()
