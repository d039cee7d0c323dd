"""Parameters of the Open Inference Protocol's messages: few requests have any, so a generated class reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from server.protocol.errors import MalformedRequest
from server.protocol.messages import message_class
from server.protocol.proto_wire import LEN, fields, text

__all__ = ["deadline_s", "priority_of", "read_parameter", "read_requested_output"]

#: Up to 24 hours, in microseconds.
_MAX_TIMEOUT_US = 86_400_000_000
#: Nobody has more levels than these.
_MAX_PRIORITY = 255

_KEY, _VALUE = 1 << 3 | LEN, 2 << 3 | LEN


def read_parameter(entry: memoryview) -> tuple[str, Any]:
    """Read an entry of a map of parameters. Errors: MalformedRequest."""
    key: Any = b""
    choice = b""
    for tag, value in fields(entry):
        if tag == _KEY:
            key = value
        elif tag == _VALUE:  # several are one, as everywhere in protocol buffers
            choice += value  # type: ignore[operator]
    name = text(key, "a parameter's name")
    try:
        parameter = message_class("inference.InferParameter").FromString(choice)
    except DecodeError:
        raise MalformedRequest(f"parameter {name[:40]!r} can't be read") from None
    chosen = parameter.WhichOneof("parameter_choice")
    return name, None if chosen is None else getattr(parameter, chosen)


def read_requested_output(message: memoryview) -> str:
    """Return the name of an output that is asked for. Errors: MalformedRequest."""
    name: Any = b""
    for tag, value in fields(message):
        if tag == _KEY:
            name = value
        elif tag == _VALUE:
            key, _ = read_parameter(value)  # type: ignore[arg-type]
            if key == "classification" or key.startswith("shared_memory"):
                raise MalformedRequest(f"{key!r} of an output is not offered by this server; leave it out")
    return text(name, "an output's name")


def deadline_s(parameters: Mapping[str, Any]) -> float | None:
    """Return the deadline that ``timeout`` sets, in microseconds there; 0 sets none. Errors: MalformedRequest."""
    timeout_us = _whole(parameters, "timeout", most=_MAX_TIMEOUT_US)
    return timeout_us / 1e6 if timeout_us else None


def priority_of(parameters: Mapping[str, Any]) -> int | None:
    """Return the ``priority``, 1 before all others; 0 is the ordinary one. Errors: MalformedRequest."""
    return _whole(parameters, "priority", most=_MAX_PRIORITY) or None


def _whole(parameters: Mapping[str, Any], name: str, *, most: int) -> int:
    value = parameters.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise MalformedRequest(f"parameter {name!r} must be a whole number from 0 to {most}")
    return value
