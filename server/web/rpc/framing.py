"""gRPC over HTTP/2: messages in data, deadlines and statuses in headers. Source: gRPC's "PROTOCOL-HTTP2"."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from urllib.parse import quote

from server.protocol import MalformedRequest
from server.web.errors import BodyTooLarge, NotOffered
from server.web.http2.header_blocks import OK_STATUS, literal
from server.web.rpc.codes import Code

__all__ = [
    "ANSWER_HEAD",
    "MESSAGE_HEAD_BYTES",
    "NOT_GRPC",
    "deadline_s",
    "message",
    "message_head",
    "trailers",
    "unpacked",
]

#: A flag and the message's length.
MESSAGE_HEAD_BYTES = 5

#: Header block that begins every answer.
ANSWER_HEAD = (
    OK_STATUS
    + literal(b"content-type", b"application/grpc")
    + literal(b"grpc-accept-encoding", b"identity,deflate,gzip")
)
#: Answer to what is no call: 415.
NOT_GRPC = literal(b":status", b"415") + literal(b"accept", b"application/grpc")

_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
#: Statuses travel in headers, which have a limit of their own.
_MAX_SENTENCE = 2_000
_PRINTABLE = "".join(chr(octet) for octet in range(0x20, 0x7F) if chr(octet) != "%")
_UNPACKED = re.compile(rb"[^\x20-\x7e]")


def deadline_s(text: bytes | None) -> float | None:
    """Read grpc-timeout, in seconds. Errors: MalformedRequest."""
    if text is None:
        return None
    match = _TIMEOUT.fullmatch(text)
    if match is None:
        raise MalformedRequest("grpc-timeout must be up to eight digits and a unit, one of H, M, S, m, u, n")
    return int(match[1]) * _UNITS_S[match[2]]


def message_head(data: bytes | bytearray) -> tuple[bool, int]:
    """Return whether a message is compressed, and its length, from its first five bytes. Errors: MalformedRequest."""
    if data[0] > 1:
        raise MalformedRequest(f"a message begins with {data[0]}, which is neither 0 nor 1")
    return bool(data[0]), int.from_bytes(data[1:5], "big")


def message(body: bytes) -> bytes:
    """Return a message as it is sent."""
    return b"\0" + len(body).to_bytes(4, "big") + body


def unpacked(body: bytes, encoding: bytes, *, limit_bytes: int) -> bytes:
    """Return a compressed message as it was. Errors: MalformedRequest; NotOffered; BodyTooLarge."""
    if encoding not in (b"gzip", b"deflate"):
        shown = encoding[:40].decode("latin-1")
        raise NotOffered(f"grpc-encoding {shown!r} is not offered; use gzip, deflate or identity")
    reader = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        found = reader.decompress(body, limit_bytes + 1)
        if len(found) > limit_bytes:
            raise BodyTooLarge("the message, unpacked,", limit_bytes=limit_bytes, setting="max_body_bytes")
        if not reader.eof:
            raise MalformedRequest("the compressed message ends too early")
    except zlib.error as error:
        raise MalformedRequest(f"the message is not {encoding.decode()}: {error}") from None
    return found


def trailers(code: Code, sentence: str, more: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the header block that ends an answer."""
    block = literal(b"grpc-status", b"%d" % code)
    if sentence:
        block += literal(b"grpc-message", quote(sentence[:_MAX_SENTENCE], safe=_PRINTABLE).encode("ascii"))
    for name, value in more:
        block += literal(name, _UNPACKED.sub(b"?", value))
    return block
