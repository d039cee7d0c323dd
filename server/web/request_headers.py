"""The request headers that mean something to a prediction, read in one pass."""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Sequence

from server.web.errors import BadHeader

__all__ = ["JSON_LENGTH", "PredictHeaders", "RequestIds", "content_length", "timeout_s"]

#: Longest request id that is echoed. It is written to logs: visible ASCII only.
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
#: Up to 24 hours, in milliseconds.
_MAX_TIMEOUT_MS = 86_400_000

#: Which part of a body is JSON, in the Open Inference Protocol.
JSON_LENGTH = b"inference-header-content-length"

_WANTED = frozenset(
    {
        JSON_LENGTH,
        b"content-encoding",
        b"content-length",
        b"traceparent",
        b"x-request-id",
        b"x-request-timeout-ms",
        b"x-rowwise-explain",
    }
)


class RequestIds:
    """Makes request ids: a prefix of this process and a running number, unique without asking the kernel each time."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6)
        self._prefix_bytes = self._prefix.encode("ascii")
        self._numbers = itertools.count(1)

    def of(self, given: bytes | None) -> str:
        """Return the caller's id if it can be echoed, else a new one."""
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given.decode("ascii")
        return f"{self._prefix}-{next(self._numbers):x}"

    def new(self) -> bytes:
        """Return a new id as it stands in a header."""
        return b"%b-%x" % (self._prefix_bytes, next(self._numbers))


class PredictHeaders:
    """The headers of one prediction; later ones of a name win, but for the one that must not be there twice."""

    __slots__ = ("_found", "_json_lengths")

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._found = {name: value for name, value in headers if name in _WANTED}
        self._json_lengths = (
            [value for name, value in headers if name == JSON_LENGTH] if JSON_LENGTH in self._found else []
        )

    @property
    def json_length(self) -> bytes | None:
        """Inference-Header-Content-Length as it came. Errors: BadHeader, if it came twice."""
        if len(self._json_lengths) > 1:
            raise BadHeader("Inference-Header-Content-Length is there twice; send it once")
        return self._found.get(JSON_LENGTH)

    @property
    def request_id(self) -> bytes | None:
        """X-Request-Id as it came."""
        return self._found.get(b"x-request-id")

    @property
    def traceparent(self) -> bytes | None:
        """W3C traceparent as it came."""
        return self._found.get(b"traceparent")

    @property
    def explain(self) -> bool:
        """True if the answer should say how it was batched."""
        return self._found.get(b"x-rowwise-explain") == b"1"

    @property
    def length_bytes(self) -> int | None:
        """Content-Length, None where the body is chunked. Errors: BadHeader."""
        return content_length(self._found.get(b"content-length"))

    def timeout_s(self) -> float | None:
        """Return the deadline that the caller set, in seconds. Errors: BadHeader."""
        text = self._found.get(b"x-request-timeout-ms")
        return None if text is None else timeout_s(text)

    @property
    def encoding(self) -> bytes | None:
        """Content-Encoding as it came."""
        return self._found.get(b"content-encoding")


def timeout_s(text: bytes) -> float:
    """Read X-Request-Timeout-Ms, in seconds. Errors: BadHeader."""
    if not text.isdigit() or len(text) > 12 or not 1 <= int(text) <= _MAX_TIMEOUT_MS:
        raise BadHeader(f"X-Request-Timeout-Ms must be a whole number from 1 to {_MAX_TIMEOUT_MS}, got {_shown(text)}")
    return int(text) / 1e3


def content_length(text: bytes | None) -> int | None:
    """Read Content-Length. Errors: BadHeader."""
    if text is None:
        return None
    if not text.isdigit() or len(text) > 18:
        raise BadHeader(f"Content-Length {_shown(text)} is no length")
    return int(text)


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("latin-1"))
