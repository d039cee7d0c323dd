"""The body of a request whose head was known and went before it: what has come of it, and what is still to come."""

from __future__ import annotations

import asyncio
from typing import Protocol

from server.web.body_fill import FILLED_BYTES, BodyFill, Filled
from server.web.hot_request import HotRequest
from server.web.known_heads import KnownHead

__all__ = ["LateBody"]


class ReceivingLane(Filled, Protocol):
    """The connection that it comes by."""

    transport: asyncio.Transport

    def await_more(self, hot: HotRequest) -> None:
        """Wait for the rest, for as long as it may take."""

    def known_came_whole(self, hot: HotRequest) -> None:
        """Start a request whose head was known and whose body came after it."""


class LateBody:
    """The one such body of a connection.

    The parser sees nothing of it, and a long binary one is received where it stays.
    """

    __slots__ = ("_hot", "_is_filling", "_lane", "n_missing")

    def __init__(self, lane: ReceivingLane) -> None:
        self._lane = lane
        self._hot: HotRequest | None = None
        #: Bytes that are still to come by way of ``take``. 0: the parser has what comes, or memory is filled.
        self.n_missing = 0
        #: True: what comes goes straight into the body's own memory.
        self._is_filling = False

    @property
    def is_filling(self) -> bool:
        """True: the transport's protocol is not the connection's own."""
        return self._is_filling

    def begin(self, hot: HotRequest, data: bytes, known: KnownHead) -> None:
        """Wait for what is missing after ``data``."""
        self._hot = hot
        n_missing = known.n_body - len(data)
        if n_missing >= FILLED_BYTES and known.wire.n_json is not None:
            fill = BodyFill(self._lane, memoryview(data), known.n_body, on_more=self._filled)
            hot.body.append(fill.body)
            self._is_filling = True
            self._lane.transport.set_protocol(fill)
        else:
            hot.body.append(data)
            self.n_missing = n_missing

    def take(self, data: bytes) -> bytes:
        """Take more of it, and return what follows it."""
        hot, n_missing = self._hot, self.n_missing
        assert hot is not None, "it is what the bytes are for"
        part = data if len(data) <= n_missing else data[:n_missing]
        hot.body.append(part)
        hot.n_received += len(part)
        self.n_missing = n_missing - len(part)
        if self.n_missing:
            self._lane.await_more(hot)
            return b""
        hot.body = [b"".join(hot.body)]
        self._lane.known_came_whole(hot)
        return data[len(part) :]

    def give_up(self) -> None:
        """Let what still comes go to the connection again."""
        if self._is_filling:
            self._is_filling = False
            self._lane.transport.set_protocol(self._lane)  # type: ignore[arg-type]

    def _filled(self, n_bytes: int, *, is_whole: bool) -> None:
        hot = self._hot
        assert hot is not None, "it is whose body is filled"
        hot.n_received += n_bytes
        if is_whole:
            self.give_up()
            self._lane.known_came_whole(hot)
        else:
            self._lane.await_more(hot)
