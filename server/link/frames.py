"""A message's frames: its header and small buffers share the first, large ones have their own and are not copied.

A frame costs about a microsecond, whatever is in it, and copying costs one for each 10 kilobytes: so what is small
travels together. Sizes of buffers do not travel: the reader knows what comes, and takes it in the order of
writing::

    first frame    length of the header (uint64), header, small buffers; each begins at a multiple of 8
    further frames one large buffer each
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from server.link.errors import LinkGarbled

__all__ = ["ALIGNMENT", "LARGE_BYTES", "PADDING", "Buffer", "FrameReader", "FrameWriter"]

#: Bytes, or a view of an array's memory. Its length counts bytes.
Buffer = bytes | memoryview

#: From this size on a buffer is a frame of its own: copying it would cost more than a frame does.
LARGE_BYTES = 32_768

#: Arrays are read where they lie, so each begins at a multiple of their largest item's size.
ALIGNMENT = 8
PADDING = [bytes(n) for n in range(ALIGNMENT)]
_LENGTH = struct.Struct("=Q")


class FrameWriter:
    """Collects buffers."""

    __slots__ = ("_large", "_small")

    def __init__(self) -> None:
        self._small: list[Buffer] = []
        self._large: list[Buffer] = []

    def add(self, buffer: Buffer) -> None:
        """Add one buffer, which must not change any more."""
        n_bytes = len(buffer)
        if n_bytes >= LARGE_BYTES:
            self._large.append(buffer)
        elif n_bytes:
            self._small.append(buffer)
            if n_bytes % ALIGNMENT:
                self._small.append(PADDING[-n_bytes % ALIGNMENT])

    def message(self, header: bytes) -> list[Buffer]:
        """Return what to send."""
        n_bytes = len(header)
        parts = (_LENGTH.pack(n_bytes), header, PADDING[-n_bytes % ALIGNMENT], *self._small)
        return [b"".join(parts), *self._large]


class FrameReader:
    """Hands out a message's header, and its buffers in the order in which they were added.

    Views keep their frame alive. Errors: LinkGarbled for frames that are no message.
    """

    __slots__ = ("_large", "_offset", "_small", "header")

    def __init__(self, frames: Sequence[Buffer]) -> None:
        if not frames or len(frames[0]) < _LENGTH.size:
            raise LinkGarbled("a message without a header")
        self._small = memoryview(frames[0])
        self._large = iter(frames[1:])
        self._offset = 0
        (n_bytes,) = _LENGTH.unpack(self.take(_LENGTH.size))
        #: MessagePack of what the message says.
        self.header = self.take(n_bytes, is_small=True)

    def take(self, n_bytes: int, *, is_small: bool = False) -> memoryview:
        """Return the next buffer; ``is_small`` whatever its size. Errors: LinkGarbled if there is none of this size."""
        if n_bytes >= LARGE_BYTES and not is_small:
            frame = next(self._large, None)
            if frame is None or len(frame) != n_bytes:
                raise LinkGarbled(f"expected a frame of {n_bytes} bytes, got {'none' if frame is None else len(frame)}")
            return memoryview(frame)
        start = self._offset
        stop = start + n_bytes
        if stop > len(self._small):
            raise LinkGarbled(f"expected {n_bytes} more bytes, got {len(self._small) - start}")
        self._offset = stop + -n_bytes % ALIGNMENT
        return self._small[start:stop]

    def close(self) -> None:
        """Say that all was taken. Errors: LinkGarbled if something is left."""
        if self._offset != len(self._small) or next(self._large, None) is not None:
            raise LinkGarbled("a message holds more than its header says")
