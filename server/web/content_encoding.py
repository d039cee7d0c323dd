"""Compressed request bodies: inflated piece by piece as they are read, so that a limit on what is read bounds memory.

A few kilobytes can inflate to gigabytes. Nothing here knows a limit, and nothing needs one: a piece is at most
``PIECE_BYTES``, and the next one is made when somebody asks for it, who counts.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

from server.web.bodies import Message, Receive, Send
from server.web.errors import BodyDamaged, EncodingNotSupported

__all__ = ["PIECE_BYTES", "Inflating", "inflated"]

#: Largest piece; inflating it takes about a millisecond, after which others have their turn.
PIECE_BYTES = 2**18
#: Most members of one gzip file. Each costs 40 KB and some microseconds, and can be 20 bytes.
_MAX_MEMBERS = 1_024

#: What is read, as zlib counts window bits: 16 more is gzip's frame, none more is zlib's, which HTTP calls deflate.
_WINDOW_BITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}


def inflated(receive: Receive, encoding: bytes | None) -> Receive:
    """Return what receives the body of a request as it was before its Content-Encoding.

    Errors, when it is called: EncodingNotSupported; BodyDamaged.
    Source: RFC 9110, section 8.4.
    """
    name = b"" if encoding is None else encoding.strip().lower()
    if name in {b"", b"identity"}:
        return receive
    bits = _WINDOW_BITS.get(name)
    if bits is None:
        return _refusing(EncodingNotSupported(name.decode("latin-1")))
    return _Inflated(receive, name.decode("ascii"), lambda: zlib.decompressobj(bits))


class Inflating:
    """ASGI middleware: the application behind receives bodies as they were before their Content-Encoding."""

    def __init__(self, app: Callable[[dict[str, Any], Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        encodings = [value for name, value in scope.get("headers", ()) if name == b"content-encoding"]
        # Several are one list, which is not supported.
        await self._app(scope, inflated(receive, b", ".join(encodings) or None), send)


def _refusing(error: EncodingNotSupported) -> Receive:
    async def refuse() -> Message:
        raise error

    return refuse


class _Inflated:
    """The state of one body."""

    def __init__(self, receive: Receive, encoding: str, make: Callable[[], zlib._Decompress]) -> None:
        self._receive = receive
        self._encoding = encoding
        self._make = make
        self._member = make()
        self._n_members = 1
        #: Bytes that have come and are not inflated.
        self._compressed = b""
        #: True: the last piece was as large as it may be, so there may be more of what it was made from.
        self._is_full = False
        self._more = True
        self._is_over = False

    async def __call__(self) -> Message:
        """Receive the next piece."""
        while True:
            if self._compressed or self._is_full:
                piece = self._inflate()
                if piece:
                    await asyncio.sleep(0)
                    return {"type": "http.request", "body": piece, "more_body": True}
            elif self._is_over:
                return await self._receive()
            elif not self._more:
                if not self._member.eof:
                    raise BodyDamaged(self._encoding, "it ends before its data does")
                self._is_over = True
                return {"type": "http.request", "body": b"", "more_body": False}
            else:
                message = await self._receive()
                if message["type"] != "http.request":
                    return message
                self._compressed = message.get("body", b"")
                self._more = message.get("more_body", False)

    def _inflate(self) -> bytes:
        member = self._member
        if member.eof:
            if self._encoding == "deflate":
                raise BodyDamaged(self._encoding, "more follows after the end of its data")
            self._n_members += 1
            if self._n_members > _MAX_MEMBERS:
                raise BodyDamaged(self._encoding, f"it has more than {_MAX_MEMBERS} members")
            member = self._member = self._make()
        try:
            piece = member.decompress(self._compressed, PIECE_BYTES)
        except zlib.error as error:
            raise BodyDamaged(self._encoding, str(error)) from None
        self._is_full = len(piece) == PIECE_BYTES and not member.eof
        self._compressed = member.unused_data if member.eof else member.unconsumed_tail
        return piece
