"""A worker's application behind the front: it passes requests on to the engine's, and its answers back.

Each request gets a connection of its own over a socket in the server's private directory, which costs a few tens of
microseconds and can't be stale. Both directions stream at the same time: an upload may be refused before all of it has
come, and the engine closes then. Hence the bare socket: an asyncio transport that fails to write ends its reader too,
and what the engine had answered before would be lost with it.

The address of the caller goes with the request, in a header that callers can't set: it is removed from what they send,
and believed only by the engine's application, which nobody but workers can reach.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httptools

from server.link.errors import EngineGone
from server.web.bodies import Receive, Send
from server.web.front import IS_FORWARDED, IS_PREDICTION, REQUEST_ID, App, Scope
from server.web.interfaces import RequestMetrics
from server.web.status import CLIENT_GONE, error_reply

__all__ = ["Forwarder", "FromWorkers"]

_PEER = b"x-rowwise-peer"

#: Headers that speak of one connection, or that both ends set for themselves.
_OF_ONE_HOP = frozenset(
    {
        b"connection",
        b"date",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
        _PEER,
    }
)
_READ_BYTES = 2**16
#: About the time in which the engine is started again.
_RETRY_AFTER_S = 5.0
#: What a path may hold besides letters and digits; everything else is quoted again.
_SAFE = "/:~!$&'()*+,;=@-._"


class Forwarder:
    """An ASGI callable that lets the application at the socket ``path`` answer.

    ``missing`` says why there may be none; ``metrics`` count the predictions that nobody answered.
    """

    def __init__(self, path: Path, *, missing: Callable[[], str | None], metrics: RequestMetrics) -> None:
        self._path = path
        self._missing = missing
        self._metrics = metrics

    async def prepare(self) -> None:
        """Nothing has to be made."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on. An engine that isn't there, or ends before it answers, makes a 503."""
        if scope["type"] != "http":
            return
        answer = _Answer(send)
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, str(self._path))
        except OSError:
            connection.close()
            await self._gone(scope, send)
            return
        sending = asyncio.create_task(_send_request(scope, receive, connection))
        reading = asyncio.create_task(answer.read(connection))
        try:
            await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
            caller_left = sending.done() and not sending.exception() and sending.result()
            if caller_left and not reading.done():
                await send({"type": "http.response.start", "status": CLIENT_GONE})
                return
            # That the engine takes no more of the body is no fault: it may have refused it.
            await reading
            if not answer.has_begun:
                await self._gone(scope, send)
            elif not (answer.is_complete or scope["method"] == "HEAD"):
                raise ConnectionError("the engine's answer was cut short")
            else:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for task in (sending, reading):
                task.cancel()
            await asyncio.gather(sending, reading, return_exceptions=True)
            connection.close()

    async def _gone(self, scope: Scope, send: Send) -> None:
        why = self._missing() or "the engine process is being started again"
        reply = error_reply(EngineGone(f"{why}: send the request again", retry_after_s=_RETRY_AFTER_S))
        if scope[IS_PREDICTION]:
            self._metrics.request_without_model(reply.status, reason=reply.reason)
        headers = [*reply.headers, (b"content-length", b"%d" % len(reply.body))]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(reply.body)})


async def _send_request(scope: Scope, receive: Receive, connection: socket.socket) -> bool:
    """Send head and body, then wait for the caller to leave. True once it has left."""
    loop = asyncio.get_running_loop()
    is_chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    unsent = _head(scope, is_chunked=is_chunked)
    more = True
    while True:
        if unsent:
            try:
                await loop.sock_sendall(connection, unsent)
            except OSError:
                more = False  # it takes no more; its answer says why
        message = await receive()
        if message["type"] == "http.disconnect":
            return True
        unsent = b""
        if more:
            chunk = message.get("body", b"")
            more = message.get("more_body", False)
            unsent = _chunk(chunk, is_last=not more) if is_chunked else chunk


def _chunk(data: bytes, *, is_last: bool) -> bytes:
    """Return what a body in chunks goes on with."""
    framed = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
    return framed + (b"0\r\n\r\n" if is_last else b"")


def _head(scope: Scope, *, is_chunked: bool) -> bytes:
    target = quote(scope["path"], safe=_SAFE).encode()
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    lines = [b"%b %b HTTP/1.1\r\n" % (scope["method"].encode(), target)]
    lines += [b"%b: %b\r\n" % (name, value) for name, value in scope["headers"] if name not in _OF_ONE_HOP]
    if is_chunked:
        lines.append(b"transfer-encoding: chunked\r\n")
    if scope.get("client"):
        lines.append(b"%b: %b %d\r\n" % (_PEER, scope["client"][0].encode(), scope["client"][1]))
    lines.append(b"x-request-id: %b\r\nconnection: close\r\n\r\n" % scope[REQUEST_ID].encode())
    return b"".join(lines)


class _Answer:
    """The engine's answer, passed on as it comes. Its methods with ``on_`` are called by the parser."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._messages: list[dict[str, Any]] = []
        self.has_begun = False
        self.is_complete = False

    async def read(self, connection: socket.socket) -> None:
        """Pass on until the answer or the connection ends."""
        loop = asyncio.get_running_loop()
        while not self.is_complete:
            try:
                data = await loop.sock_recv(connection, _READ_BYTES)
            except OSError:
                return
            if not data:
                return
            self._parser.feed_data(data)
            messages, self._messages = self._messages, []
            for message in messages:
                await self._send(message)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() not in _OF_ONE_HOP:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.has_begun = True
        status = self._parser.get_status_code()
        self._messages.append({"type": "http.response.start", "status": status, "headers": self._headers})

    def on_body(self, data: bytes) -> None:
        self._messages.append({"type": "http.response.body", "body": data, "more_body": True})

    def on_message_complete(self) -> None:
        self.is_complete = True


class FromWorkers:
    """The engine's application, as workers reach it: who asks is who the worker says."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of a worker."""
        peers = [value for name, value in scope.get("headers", ()) if name == _PEER]
        headers = [header for header in scope.get("headers", ()) if header[0] != _PEER]
        told = {"headers": headers, "client": _address(peers), IS_FORWARDED: True}
        await self._app({**scope, **told}, receive, send)


def _address(peers: Iterable[bytes]) -> tuple[str, int] | None:
    """Return the caller's address; None, which is nobody's, unless it is told once and as workers tell it."""
    told = list(peers)
    host, _, port = told[0].decode("latin-1").partition(" ") if len(told) == 1 else ("", "", "")
    return (host, int(port)) if host and port.isdecimal() else None
