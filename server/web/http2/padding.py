"""Padding that a frame may have around what it carries."""

from __future__ import annotations

from server.web.http2.frames import ErrorCode
from server.web.http2.stream import ProtocolBroken

__all__ = ["unpadded"]


def unpadded(payload: bytes) -> bytes:
    """Return what a padded frame carries. Errors: ProtocolBroken."""
    if not payload or payload[0] >= len(payload):
        raise ProtocolBroken(ErrorCode.PROTOCOL_ERROR, "more padding than there is")
    return payload[1 : len(payload) - payload[0]]
