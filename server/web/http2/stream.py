"""One stream of a connection: its windows, and who handles it."""

from __future__ import annotations

from collections import deque
from typing import Protocol

__all__ = ["OVER", "STREAM_WINDOW", "Handler", "ProtocolBroken", "Stream"]

#: Bytes that a stream may send ahead of its handler.
STREAM_WINDOW = 2**20


class Handler(Protocol):
    """What a stream is about."""

    def received(self, data: bytes) -> None:
        """Take bytes. Room for as many is given back by ``Connection.credit``."""

    def ended(self) -> None:
        """The other side sends no more."""

    def was_reset(self) -> None:
        """The other side wants no answer, or is gone."""

    def tick(self) -> None:
        """Look whether it takes too long. Called every second or so."""


class Stream:
    """One stream that is not over."""

    __slots__ = ("handler", "has_ended", "id", "pending", "receive_window", "send_window", "spent")

    def __init__(self, stream_id: int, *, send_window: int) -> None:
        self.id = stream_id
        self.handler: Handler
        #: True: the other side sends no more.
        self.has_ended = False
        self.receive_window = STREAM_WINDOW
        #: Bytes that were given back and not yet said to be.
        self.spent = 0
        self.send_window = send_window
        #: Frames of headers, and bytes of data as views, in their order.
        self.pending: deque[bytes | memoryview] = deque()


class _Over:
    """Handles a stream that was answered."""

    def received(self, data: bytes) -> None:
        """Ignore it."""

    def ended(self) -> None:
        """Ignore it."""

    def was_reset(self) -> None:
        """Ignore it."""

    def tick(self) -> None:
        """Ignore it."""


OVER: Handler = _Over()


class ProtocolBroken(Exception):
    """The connection can't go on. ``code`` is one of HTTP/2's error codes."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
