"""A client by the frame, and a transport without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from hpack import Decoder, Encoder

from server.web.http2.connection import Connection
from server.web.http2.frames import END_HEADERS, PREFACE, Kind, frame
from server.web.http2.frames import settings as settings_frame
from server.web.http2.header_blocks import Headers
from server.web.http2.stream import Handler, Stream

__all__ = ["Client", "Recorder", "Transport"]


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.is_closed = False

    def get_extra_info(self, _name: str) -> Any:
        return ("127.0.0.1", 5000)

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Take what was written since the last time: kind, flags, stream and payload."""
        found, data = [], bytes(self.written)
        while data:
            size = int.from_bytes(data[:3], "big")
            found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
            data = data[9 + size :]
        self.written.clear()
        return found


class Recorder:
    """A handler that keeps what it is told."""

    def __init__(self, stream: Stream, headers: Mapping[bytes, bytes]) -> None:
        self.stream = stream
        self.headers = headers
        self.data = b""
        self.has_ended = self.is_reset = False

    def received(self, data: bytes) -> None:
        self.data += data

    def ended(self) -> None:
        self.has_ended = True

    def was_reset(self) -> None:
        self.is_reset = True

    def tick(self) -> None:
        pass


class Client:
    """The other side of a connection, and both ends of it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        step: int | None = None,
        begin: Callable[[Connection, Stream, Headers], Handler] | None = None,
    ) -> None:
        self.transport = Transport()
        self.handlers: list[Recorder] = []
        self.closed: list[Connection] = []
        self.connection = Connection(loop, begin or self._begin, on_close=self.closed.append)
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self.encoder = Encoder()
        self._step = step
        self.feed(PREFACE + settings_frame({}))

    def _begin(self, _connection: Connection, stream: Stream, headers: Mapping[bytes, bytes]) -> Recorder:
        self.handlers.append(Recorder(stream, headers))
        return self.handlers[-1]

    def feed(self, data: bytes) -> None:
        step = self._step or len(data) or 1
        for start in range(0, len(data), step):
            if not self.transport.is_closed:
                self.connection.data_received(data[start : start + step])

    def open(self, stream_id: int, *, flags: int = END_HEADERS, **headers: str) -> None:
        self.feed(frame(Kind.HEADERS, flags, stream_id, self.block(**headers)))

    def block(self, **headers: str) -> bytes:
        return self.encoder.encode([(":method", "POST"), (":path", "/a/b"), *headers.items()])

    def answers(self) -> list[dict[str, str]]:
        """Return the headers of the answers that have ended."""
        decoder = Decoder()
        return [
            dict(decoder.decode(payload))
            for kind, flags, _, payload in self.transport.frames()
            if kind == Kind.HEADERS and flags & 1
        ]

    def broken(self) -> int:
        """Return the code with which the connection was ended."""
        (payload,) = [payload for kind, _, _, payload in self.transport.frames() if kind == Kind.GOAWAY]
        assert self.transport.is_closed
        return int.from_bytes(payload[4:8], "big")
