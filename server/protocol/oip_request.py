"""The JSON of an inference request of the Open Inference Protocol, as it is written: not yet held against a model."""

from __future__ import annotations

from typing import Any

import msgspec

from server.protocol.errors import MalformedRequest
from server.protocol.json_examples import json_kind, parse_json

__all__ = ["InferRequest", "InputTensor", "OutputWish", "exact_request", "flag_of", "header_bytes", "whole_of"]


class InputTensor(msgspec.Struct, gc=False):
    """One input. ``data`` is unset where its values are among the binary ones."""

    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] | None = None
    data: Any = msgspec.UNSET


class OutputWish(msgspec.Struct, gc=False):
    """One output that is asked for."""

    name: str
    parameters: dict[str, Any] | None = None


class InferRequest(msgspec.Struct, gc=False):
    """The whole of it. What is not named here is ignored, as the protocol wants."""

    inputs: list[InputTensor]
    id: str | None = None
    parameters: dict[str, Any] | None = None
    outputs: list[OutputWish] | None = None


def exact_request(text: bytes) -> InferRequest:
    """Read a request's JSON with its values as Python objects. Errors: MalformedRequest, with a sentence."""
    message = parse_json(text, expected="a JSON object with 'inputs'")
    if not isinstance(message, dict):
        raise MalformedRequest(f"expected a JSON object with 'inputs', got {json_kind(message)}")
    try:
        return msgspec.convert(message, InferRequest)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MalformedRequest(f"the request is none of the Open Inference Protocol: {error}") from None
    except UnicodeEncodeError:  # an escape made it
        raise MalformedRequest("a key of the request has half of a surrogate pair, which is no character") from None


def header_bytes(text: bytes) -> int:
    """Read the value of Inference-Header-Content-Length. Errors: MalformedRequest."""
    if not text.isdigit() or len(text) > 18:
        shown = repr(text[:40].decode("latin-1"))
        raise MalformedRequest(f"Inference-Header-Content-Length {shown} is no length: send the bytes of the JSON part")
    return int(text)


def whole_of(parameters: dict[str, Any], name: str, *, most: int) -> int | None:
    """Return a parameter that is a whole number from 0 on; None where it is not there. Errors: MalformedRequest."""
    value = parameters.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise MalformedRequest(f"parameter {name!r} must be a whole number from 0 to {most}, got {json_kind(value)}")
    return value


def flag_of(parameters: dict[str, Any] | None, name: str) -> bool | None:
    """Return a parameter that is true or false; None where it is not there. Errors: MalformedRequest."""
    value = None if parameters is None else parameters.get(name)
    if value is not None and not isinstance(value, bool):
        raise MalformedRequest(f"parameter {name!r} must be true or false, got {json_kind(value)}")
    return value
