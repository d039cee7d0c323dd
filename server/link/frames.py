"""Buffers as the frames of one message: small ones share a frame, large ones have their own and are not copied.

A frame costs a few microseconds, whatever is in it, and copying costs a microsecond for each 10 kilobytes: so what is
small travels together. Sizes do not travel: the reader knows what comes, and takes it in the order of writing.
"""

from __future__ import annotations

from collections.abc import Sequence

from server.link.errors import LinkGarbled

__all__ = ["LARGE_BYTES", "Buffer", "FrameReader", "FrameWriter"]

#: Bytes, or a view of an array's memory. Its length counts bytes.
Buffer = bytes | memoryview

#: From this size on a buffer is a frame of its own. libzmq's own break-even of copying against sharing is near.
LARGE_BYTES = 32_768

#: Arrays are read where they lie, so each begins at a multiple of their largest item's size.
_ALIGNMENT = 8
_PADDING = [bytes(n) for n in range(_ALIGNMENT)]


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
            if n_bytes % _ALIGNMENT:
                self._small.append(_PADDING[-n_bytes % _ALIGNMENT])

    def frames(self) -> list[Buffer]:
        """Return what to send: the small ones' frame, then the large ones."""
        return [b"".join(self._small), *self._large]


class FrameReader:
    """Hands out buffers in the order in which they were added. Views keep their frame alive."""

    __slots__ = ("_large", "_offset", "_small")

    def __init__(self, frames: Sequence[Buffer]) -> None:
        if not frames:
            raise LinkGarbled("a message without the frame of its small buffers")
        self._small = memoryview(frames[0])
        self._large = iter(frames[1:])
        self._offset = 0

    def take(self, n_bytes: int) -> memoryview:
        """Return the next buffer. Errors: LinkGarbled if there is none of this size."""
        if n_bytes >= LARGE_BYTES:
            frame = next(self._large, None)
            if frame is None or len(frame) != n_bytes:
                raise LinkGarbled(f"expected a frame of {n_bytes} bytes, got {'none' if frame is None else len(frame)}")
            return memoryview(frame)
        start = self._offset
        stop = start + n_bytes
        if stop > len(self._small):
            raise LinkGarbled(f"expected {n_bytes} more bytes, got {len(self._small) - start}")
        self._offset = stop + -n_bytes % _ALIGNMENT
        return self._small[start:stop]

    def close(self) -> None:
        """Say that all was taken. Errors: LinkGarbled if something is left."""
        if self._offset != len(self._small) or next(self._large, None) is not None:
            raise LinkGarbled("a message holds more than its header says")
