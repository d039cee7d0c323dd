"""Messages of protocol buffers that differ only in their values: what the first of them was found to be, all are.

A message is tags, lengths and payloads. Where two of the same size have the same bytes everywhere but inside the
payloads of certain fields, they have the same fields at the same places, as every tag and every length is among the
bytes that are the same. So a message is taken apart once, and the next ones are compared with it. What is inside such a
payload must mean nothing to the rest of the message: raw numbers, or an id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from server.protocol.proto_wire import FIXED32, FIXED64, LEN, VARINT

__all__ = ["KnownLayouts", "Layout", "Span", "places"]

#: Where something begins and ends.
Span = tuple[int, int]

#: Layouts of one size that are kept, and sizes, and bytes around the values: strangers can make up all of them.
_MAX_ALIKE = 8
_MAX_SIZES = 512
_MAX_FIXED_BYTES = 2_048

Made = TypeVar("Made")


def places(message: bytes, start: int, stop: int) -> list[tuple[int, int, int]]:
    """Return tag, beginning and end of the payload of each field of a message inside another one.

    Errors: ValueError where it is none.
    """
    found: list[tuple[int, int, int]] = []
    at = start
    while at < stop:
        tag, at = _varint(message, at, stop)
        kind = tag & 7
        if kind == VARINT:
            end = _varint(message, at, stop)[1]
        elif kind == LEN:
            size, at = _varint(message, at, stop)
            end = at + size
        elif kind in (FIXED32, FIXED64):
            end = at + (4 if kind == FIXED32 else 8)
        else:
            raise ValueError("a field of an unknown type")
        if end > stop:
            raise ValueError("a field ends behind its message")
        found.append((tag, at, end))
        at = end
    return found


def _varint(message: bytes, at: int, stop: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= stop:
            break
        octet = message[at]
        at += 1
        value |= (octet & 127) << shift
        if octet < 128:
            return value, at
    raise ValueError("an integer without an end")


class Layout:
    """What is the same in messages of one size. ``values``: where the values of each input are; ``id``: where an id is.

    Neither overlaps another, and no value is empty.
    """

    __slots__ = ("_fixed", "id", "n_fixed_bytes", "size", "values")

    def __init__(self, body: bytes, values: Mapping[str, Span], id_: Span | None) -> None:
        self.size = len(body)
        self.values = values
        self.id = id_
        self._fixed: list[tuple[bytes, int]] = []
        at = 0
        for start, stop in [*sorted([*values.values(), *([] if id_ is None else [id_])]), (self.size, self.size)]:
            if start > at:
                self._fixed.append((body[at:start], at))
            at = stop
        self.n_fixed_bytes = sum(len(piece) for piece, _ in self._fixed)

    def fits(self, body: bytes) -> bool:
        """Return whether a message of this size has this layout."""
        for piece, start in self._fixed:
            if not body.startswith(piece, start):
                return False
        # An id is text, which other bytes may not be.
        return self.id is None or body[self.id[0] : self.id[1]].isascii()

    def id_of(self, body: bytes) -> bytes | None:
        """Return a message's id."""
        return None if self.id is None else body[self.id[0] : self.id[1]]


class KnownLayouts(Generic[Made]):
    """What was made of each layout."""

    __slots__ = ("_by_size",)

    def __init__(self) -> None:
        self._by_size: dict[int, list[tuple[Layout, Made]]] = {}

    def find(self, body: bytes) -> Made | None:
        """Return what was made of a message's layout, None: it is not known."""
        for layout, made in self._by_size.get(len(body), ()):
            if layout.fits(body):
                return made
        return None

    def keep(self, layout: Layout, made: Made) -> None:
        """Remember it, if it is not too large, and forget others once there are too many."""
        if layout.n_fixed_bytes > _MAX_FIXED_BYTES:
            return
        alike = self._by_size.get(layout.size)
        if alike is None:
            if len(self._by_size) >= _MAX_SIZES:
                self._by_size.clear()
            alike = self._by_size[layout.size] = []
        if len(alike) >= _MAX_ALIKE:
            alike.pop(0)
        alike.append((layout, made))
