"""Receiving a long body where it stays: the kernel writes it into the memory that it is read from.

Otherwise each piece is copied out of the loop's buffer, and all pieces together once they are there.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import numpy as np

__all__ = ["FILLED_BYTES", "BodyFill", "Filled"]

#: Bytes of a body that are still to come from which on it is received so. Two changes of the transport's protocol cost
#: about as much as copying these.
FILLED_BYTES = 2**17


class OnMore(Protocol):
    """Told of what comes."""

    def __call__(self, n_bytes: int, *, is_whole: bool) -> None:
        """Note that more of the body is there."""


class Filled(Protocol):
    """Whose body it is: a connection that has lent its transport."""

    def eof_received(self) -> None:
        """The caller sends no more."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""

    def pause_writing(self) -> None:
        """The transport takes no more for a while."""

    def resume_writing(self) -> None:
        """It does again."""


class BodyFill(asyncio.BufferedProtocol):
    """The rest of one body of ``n_body`` bytes, of which ``data`` has come; ``lane`` hears of its
    transport meanwhile, ``on_more`` of what comes."""

    def __init__(self, lane: Filled, data: memoryview, n_body: int, *, on_more: OnMore) -> None:
        self._lane = lane
        self._on_more = on_more
        #: Whatever was in that memory before: nobody reads it before all of it is received. Until it is written to it
        #: may not even be in memory, so that a length that is said costs nothing.
        self.body = np.empty(n_body, np.uint8).data
        self.body[: len(data)] = data
        self._n = len(data)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where the next bytes go: no byte of what follows the body is taken."""
        return self.body[self._n :]

    def buffer_updated(self, nbytes: int) -> None:
        """Note what came."""
        self._n += nbytes
        self._on_more(nbytes, is_whole=self._n == len(self.body))

    def eof_received(self) -> None:
        """Tell the lane."""
        return self._lane.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the lane."""
        self._lane.connection_lost(exc)

    def pause_writing(self) -> None:
        """Tell the lane."""
        self._lane.pause_writing()

    def resume_writing(self) -> None:
        """Tell the lane."""
        self._lane.resume_writing()
