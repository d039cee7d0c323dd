"""Frames of HTTP/2, as bytes. Source: RFC 9113, sections 4, 6 and 7."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum

__all__ = [
    "ACK",
    "END_HEADERS",
    "END_STREAM",
    "FRAME_HEAD_BYTES",
    "HAS_PRIORITY",
    "MAX_FRAME_BYTES",
    "MAX_WINDOW",
    "PADDED",
    "PREFACE",
    "ErrorCode",
    "Kind",
    "Setting",
    "frame",
    "goaway",
    "read_settings",
    "reset",
    "settings",
    "unpack_head",
    "window_update",
]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEAD_BYTES = 9
#: The largest payload that either side may send unless it was told otherwise; this one tells nothing else.
MAX_FRAME_BYTES = 16_384
MAX_WINDOW = 2**31 - 1

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20


#: Reads a frame's head at a place: its size in two parts, kind, flags, and stream with a bit that means nothing.
unpack_head = struct.Struct(">HBBBI").unpack_from


class Kind(IntEnum):
    """What a frame is. Others are ignored."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Setting(IntEnum):
    """Settings that mean something here."""

    HEADER_TABLE_SIZE = 1
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Return a frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream_id.to_bytes(4, "big") + payload


def settings(values: Mapping[Setting, int]) -> bytes:
    """Return a SETTINGS frame."""
    payload = b"".join(struct.pack(">HI", key, value) for key, value in values.items())
    return frame(Kind.SETTINGS, 0, 0, payload)


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Return the settings of a payload whose length is a multiple of six, as it must be."""
    return list(struct.iter_unpack(">HI", payload))


def window_update(stream_id: int, n_bytes: int) -> bytes:
    """Return a frame that lets the other side send more; stream 0 is the connection."""
    return frame(Kind.WINDOW_UPDATE, 0, stream_id, n_bytes.to_bytes(4, "big"))


def reset(stream_id: int, code: ErrorCode) -> bytes:
    """Return a frame that ends a stream."""
    return frame(Kind.RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def goaway(last_stream_id: int, code: int, reason: str = "") -> bytes:
    """Return a frame that ends a connection: streams after the last one are not answered."""
    payload = last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big") + reason.encode("ascii", "replace")
    return frame(Kind.GOAWAY, 0, 0, payload)
