"""Header blocks (HPACK, RFC 7541): what comes is decoded once for all calls that send it, what goes is literal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hpack import Decoder, HPACKError

__all__ = ["OK_STATUS", "BadHeaderBlock", "HeaderReader", "Headers", "literal"]

#: ``:status: 200`` of the static table.
OK_STATUS = b"\x88"

#: Blocks that are remembered for each connection, while nothing changes what they mean.
_MAX_REMEMBERED = 64
_MAX_REMEMBERED_BYTES = 1_024


class BadHeaderBlock(Exception):
    """A block that can't be decoded: the connection is lost, as both sides no longer agree what indexes mean."""


class Headers(dict[bytes, bytes]):
    """The headers of a block: of several with one name the last.

    ``meaning`` is for who handles streams: what he makes of them, he finds there when the same block comes again.
    """

    __slots__ = ("meaning",)

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        super().__init__(headers)
        self.meaning: Any = None


class HeaderReader:
    """Decodes the blocks of one connection, in their order.

    A client's calls differ little: most blocks consist of indexes into a table that a block can also change. One that
    changed nothing means the same until another does, so it is looked up then.
    """

    __slots__ = ("_decoder", "_known")

    def __init__(self, *, max_bytes: int) -> None:
        self._decoder = Decoder(max_header_list_size=max_bytes)
        self._known: dict[bytes, Headers] = {}

    def read(self, block: bytes) -> Headers:
        """Return the headers, the same object for a block that means the same. Errors: BadHeaderBlock."""
        found = self._known.get(block)
        if found is not None:
            return found
        before = self._table()
        try:
            headers = Headers((bytes(name), bytes(value)) for name, value in self._decoder.decode(block, raw=True))
        except (HPACKError, IndexError, ValueError) as error:
            raise BadHeaderBlock(str(error)) from None
        now = self._table()
        if now[0] is not before[0] or now[1:] != before[1:] or len(self._known) >= _MAX_REMEMBERED:
            self._known.clear()
        elif len(block) <= _MAX_REMEMBERED_BYTES:
            self._known[block] = headers
        return headers

    def _table(self) -> tuple[object, int, int]:
        """Return what tells whether the table of indexes was changed: entries are only ever added in front.

        The first one itself, not its identity, which another may have once it is gone.
        """
        entries = self._decoder.header_table.dynamic_entries
        return entries[0] if entries else None, len(entries), self._decoder.header_table_size


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header that is written out and changes no table."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    size -= 127
    octets = bytearray((127,))
    while size > 127:
        octets.append(size & 127 | 128)
        size >>= 7
    octets.append(size)
    return bytes(octets) + text
