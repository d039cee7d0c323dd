"""One HTTP/1.1 connection on which every byte is accounted for: nothing that a server sends too much is swallowed."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Answer", "Connection"]

_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    """What came: status, headers by their lower-case names, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """A connection that has one request under way at a time. Errors of all methods: OSError; TimeoutError."""

    def __init__(self, address: tuple[str, int], *, patience_s: float) -> None:
        self._socket = socket.create_connection(address, timeout=patience_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        #: What was received and belongs to no answer yet.
        self._rest = b""

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def receive(self) -> Answer:
        """Return the next answer. Errors: ConnectionError if there is none, or it is no HTTP."""
        head, _, self._rest = self._until(b"\r\n\r\n")
        status_line, *lines = head.decode("latin-1").split("\r\n")
        try:
            status = int(status_line.split(" ", 2)[1])
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            length = int(headers["content-length"])
        except (IndexError, KeyError, ValueError) as error:
            raise ConnectionError(f"no HTTP answer with a length: {head[:200]!r}") from error
        while len(self._rest) < length:
            self._rest += self._some()
        body, self._rest = self._rest[:length], self._rest[length:]
        return Answer(status, headers, body)

    def has_more(self) -> bool:
        """Return whether bytes have come that belong to no answer."""
        if self._rest:
            return True
        if not select.select([self._socket], [], [], 0)[0]:
            return False
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _until(self, mark: bytes) -> tuple[bytes, bytes, bytes]:
        while mark not in self._rest:
            self._rest += self._some()
        return self._rest.partition(mark)

    def _some(self) -> bytes:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise ConnectionError("the connection was closed")
        return data
