"""Messages without tensors: read and written by protobuf's own classes, from and to plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError

from server.protocol import MalformedRequest
from server.protocol.messages import message_class, pool

__all__ = ["read_message", "write_message"]


def read_message(full_name: str, body: bytes) -> Any:
    """Read a message. Errors: MalformedRequest."""
    try:
        return message_class(full_name).FromString(body)
    except DecodeError:
        raise MalformedRequest(f"the message is no {full_name}") from None


def write_message(full_name: str, values: Mapping[str, Any]) -> bytes:
    """Write values in protobuf's JSON form; what the message has no field for is left out."""
    message = message_class(full_name)()
    ParseDict(values, message, ignore_unknown_fields=True, descriptor_pool=pool())
    written: bytes = message.SerializeToString()
    return written
