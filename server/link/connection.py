"""A connection between a worker and the engine: messages over a Unix socket, on the event loop itself.

Theory of operation. A message leaves in one system call of the sender's, and wakes the receiver once. A library's
sockets that send in a thread of their own are woken four times for a message and its answer on top of that, and these
threads ask for the cores that batches run on (figures: ``DECISIONS.md``).

A message on the wire, in the machine's own byte order; each part begins at a multiple of 8, so that arrays can be read
where they lie::

    bytes of the message in all (uint64), number of frames (uint64), size of each frame (uint64), the frames
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from server.link.errors import LinkGarbled
from server.link.frames import ALIGNMENT, PADDING, Buffer

__all__ = ["Connection"]

_log = logging.getLogger(__name__)

_WORD = 8
_HEAD = struct.Struct("=QQ")
_WORDS = struct.Struct("=Q")
#: A message of one frame, as most are.
_SINGLE = struct.Struct("=QQQ")


class Connection(asyncio.Protocol):
    """Sends at once, and calls ``on_message`` with each message's frames; ``on_lost`` once, when it has ended.

    Nothing bounds what waits to be sent: that is what callers wait for, and admission bounds them.
    ``on_message`` may send, and may close the connection; what it raises is logged, and the next message is taken.
    """

    def __init__(
        self, on_message: Callable[[Connection, list[Buffer]], None], on_lost: Callable[[Connection], None]
    ) -> None:
        self._on_message = on_message
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        #: The beginning of a message whose size is not known yet.
        self._begun = b""
        #: A message that is larger than what has come of it, as far as it has; None while there is none.
        self._large: memoryview | None = None
        self._n_large = 0

    @property
    def is_open(self) -> bool:
        """True from the beginning until it has ended."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _reason: Exception | None) -> None:
        """Tell that it has ended."""
        self._transport = None
        self._on_lost(self)

    def send(self, frames: Sequence[Buffer]) -> None:
        """Send one message; nothing if the connection has ended. What it is made of must not change any more."""
        transport = self._transport
        if transport is None:
            return
        if len(frames) == 1 and len(frames[0]) % ALIGNMENT == 0:
            n_bytes = len(frames[0])
            transport.writelines((_SINGLE.pack(_SINGLE.size + n_bytes, 1, n_bytes), frames[0]))
            return
        parts: list[Buffer] = []
        sizes = []
        n_bytes = _HEAD.size + _WORD * len(frames)
        for frame in frames:
            size = len(frame)
            sizes.append(size)
            parts.append(frame)
            if size % ALIGNMENT:
                parts.append(PADDING[-size % ALIGNMENT])
            n_bytes += size + -size % ALIGNMENT
        head = _HEAD.pack(n_bytes, len(frames)) + b"".join(map(_WORDS.pack, sizes))
        transport.writelines([head, *parts])

    def close(self) -> None:
        """Close it; what was not sent is lost, and ``on_lost`` is not called. Harmless when closed."""
        self._on_lost = _nobody
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def data_received(self, data: bytes) -> None:
        """Take what came: messages, and parts of some."""
        view = memoryview(data)
        if self._large is not None:
            view = self._take_more(self._large, view)
        elif self._begun:
            view, self._begun = memoryview(self._begun + data), b""
        while len(view) >= _HEAD.size:
            n_bytes, n_frames = _HEAD.unpack_from(view)
            if n_bytes > len(view):
                self._begin_large(n_bytes, view)
                return
            self._take(view[:n_bytes], n_frames)
            if self._transport is None:
                return
            view = view[n_bytes:]
        self._begun = bytes(view)

    def _begin_large(self, n_bytes: int, part: memoryview) -> None:
        # Not a bytearray, which would be filled with zeros first.
        large = np.empty(n_bytes, np.uint8).data
        large[: len(part)] = part
        self._large, self._n_large = large, len(part)

    def _take_more(self, large: memoryview, more: memoryview) -> memoryview:
        """Add to the message that is not complete, and return what follows it."""
        used = min(len(more), len(large) - self._n_large)
        large[self._n_large : self._n_large + used] = more[:used]
        self._n_large += used
        if self._n_large == len(large):
            self._large = None
            self._take(large, _HEAD.unpack_from(large)[1])
        rest = more[used:]
        # What follows begins anywhere; arrays in it are to lie at multiples of 8 all the same.
        return memoryview(bytes(rest)) if used % ALIGNMENT else rest

    def _take(self, message: memoryview, n_frames: int) -> None:
        try:
            self._on_message(self, _frames(message, n_frames))
        except Exception:  # noqa: BLE001 - one message must not end the link
            _log.exception("a message on the link could not be taken")


def _frames(message: memoryview, n_frames: int) -> list[Buffer]:
    start = _HEAD.size + _WORD * n_frames
    frames: list[Buffer] = []
    for (size,) in _WORDS.iter_unpack(message[_HEAD.size : start]):
        frames.append(message[start : start + size])
        start += size + -size % ALIGNMENT
    if start != len(message):
        raise LinkGarbled(f"a message of {len(message)} bytes holds frames of {start}")
    return frames


def _nobody(_connection: Connection) -> None:
    """Nobody wants to know."""
