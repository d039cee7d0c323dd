"""What a registration by source text carries besides its specification: the text, the function's name, weights."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from server.protocol.json_examples import json_kind
from server.web.errors import BodyTooLarge, RegistrationRefused

__all__ = ["MAX_SOURCE_BYTES", "function_name", "source_text", "weights_bytes"]

#: Of the text. A function of one example has a few kilobytes; what is larger is weights, which come by themselves.
MAX_SOURCE_BYTES = 256 * 1024

_DEFAULT_FUNCTION = "predict"
_MAX_NAME_CHARS = 100


def source_text(value: Any) -> str:
    """Return the text, from a JSON value or a form's bytes. Errors: RegistrationRefused; BodyTooLarge."""
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RegistrationRefused(f"'source' is not UTF-8: {error.reason} at byte {error.start}") from None
    if not isinstance(value, str) or not value.strip():
        raise RegistrationRefused(f"'source' must be the text of a Python module, got {json_kind(value)}")
    try:
        n_bytes = len(value.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise RegistrationRefused(f"'source' is not Unicode: {error.reason} at character {error.start}") from None
    if n_bytes > MAX_SOURCE_BYTES:
        raise BodyTooLarge("'source'", limit_bytes=MAX_SOURCE_BYTES, setting="fixed; send arrays as 'weights'")
    return value


def function_name(value: Any) -> str:
    """Return the name of the function in the text, ``predict`` for None. Errors: RegistrationRefused."""
    if value is None:
        return _DEFAULT_FUNCTION
    name = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if not isinstance(name, str) or not name.isidentifier() or len(name) > _MAX_NAME_CHARS:
        raise RegistrationRefused("'function' must be the name of the function in 'source'")
    return name


def weights_bytes(value: Any) -> bytes | None:
    """Return the bytes of an ``.npz`` that came as base64; None for None. Errors: RegistrationRefused."""
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise RegistrationRefused(
            "'weights' must be an .npz in base64: numpy.savez(file, ...), then base64 of the file; large ones go as "
            "the part 'weights' of a form"
        ) from None
