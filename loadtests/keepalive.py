"""Connections that are kept, each with one request under way at a time, watched by one epoll: what every driver needs.

A connection is named by its file descriptor. Sockets don't block; what a socket won't take at once is waited for.
"""

from __future__ import annotations

import select
import socket
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

from loadtests.answers import AnswerError, AnswerReader

__all__ = ["Broken", "KeepAlive", "address_of"]

_READ_BYTES = 1 << 18
_PORTS = {"http": 80, "https": 443}


class Broken(Exception):
    """A connection ended without an answer, or what came is none."""


def address_of(url: str, *, schemes: tuple[str, ...] = ("http",)) -> tuple[str, int]:
    """Return a URL's host and port. Errors: ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in schemes or not parts.hostname:
        raise ValueError(f"expected a URL such as http://127.0.0.1:8000, got {url!r}")
    return parts.hostname, parts.port or _PORTS[parts.scheme]


class KeepAlive:
    """Open connections to one address. ``patience_s`` bounds a connect, and a send that the other side doesn't take.

    Errors of ``open`` and ``replace``: OSError.
    """

    def __init__(self, address: tuple[str, int], *, patience_s: float, tls: ssl.SSLContext | None = None) -> None:
        self._address = address
        self._patience_s = patience_s
        self._tls = tls
        self._poll = select.epoll()
        self._open: dict[int, tuple[socket.socket, AnswerReader]] = {}
        #: Waits for connections that have something to read; takes seconds, in steps of a millisecond.
        self.poll = self._poll.poll

    def __len__(self) -> int:
        return len(self._open)

    def fds(self) -> list[int]:
        """Return every connection."""
        return list(self._open)

    def fileno(self) -> int:
        """Return what can be selected on: ready when a connection has something to read."""
        return self._poll.fileno()

    def open(self) -> int:
        """Make a connection."""
        connection = socket.create_connection(self._address, timeout=self._patience_s)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_hostname=self._address[0])
            connection.setblocking(False)
            self._poll.register(connection.fileno(), select.EPOLLIN)
        except BaseException:
            connection.close()
            raise
        self._open[connection.fileno()] = connection, AnswerReader()
        return connection.fileno()

    def send(self, fd: int, request: bytes) -> None:
        """Send a request. If the other side is gone, reading will say so."""
        connection = self._open[fd][0]
        with suppress(OSError):
            try:
                n_sent = connection.send(request)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                n_sent = 0
            if n_sent < len(request):
                connection.settimeout(self._patience_s)
                connection.sendall(memoryview(request)[n_sent:])
                connection.setblocking(False)

    def receive(self, fd: int) -> tuple[int, bytes] | None:
        """Return (status, body) once an answer is whole. Errors: Broken."""
        connection, reader = self._open[fd]
        try:
            data = connection.recv(_READ_BYTES)
            if not data:
                raise Broken("connection closed without an answer")
            answer = reader.feed(data)
            # What TLS has read ahead, epoll knows nothing of.
            while answer is None and self._tls is not None:
                data = connection.recv(_READ_BYTES)
                if not data:
                    raise Broken("connection closed within an answer")
                answer = reader.feed(data)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except (OSError, AnswerError) as error:
            raise Broken(f"broken connection: {error}") from error
        return answer

    def drop(self, fd: int) -> None:
        """Hang up."""
        self._poll.unregister(fd)
        self._open.pop(fd)[0].close()

    def replace(self, fd: int) -> int:
        """Hang up, and make another connection."""
        self.drop(fd)
        return self.open()

    def close(self) -> None:
        """Hang up everywhere."""
        for connection, _ in self._open.values():
            connection.close()
        self._open.clear()
        self._poll.close()
