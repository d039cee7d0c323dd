"""The one table from error classes to gRPC status codes: by HTTP status, and by class where that says too little."""

from __future__ import annotations

from enum import IntEnum

from server.batching import errors as batching
from server.errors import RowwiseError
from server.protocol import errors as protocol
from server.web import errors as web
from server.web.status import CLIENT_GONE, retry_after_s, status_of

__all__ = ["BY_STATUS", "Code", "code_of", "retry_metadata"]


class Code(IntEnum):
    """gRPC's status codes, as far as this server answers with them."""

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


BY_STATUS = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    408: Code.DEADLINE_EXCEEDED,
    409: Code.FAILED_PRECONDITION,
    413: Code.RESOURCE_EXHAUSTED,
    414: Code.INVALID_ARGUMENT,
    415: Code.UNIMPLEMENTED,
    429: Code.RESOURCE_EXHAUSTED,
    431: Code.INVALID_ARGUMENT,
    CLIENT_GONE: Code.CANCELLED,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
    505: Code.UNIMPLEMENTED,
    507: Code.RESOURCE_EXHAUSTED,
}

#: RESOURCE_EXHAUSTED asks callers to try again later, which does not make a request smaller.
_BY_CLASS: dict[type[RowwiseError], Code] = {
    batching.TooManyRows: Code.INVALID_ARGUMENT,
    protocol.TooManyInstances: Code.INVALID_ARGUMENT,
    # As gRPC itself says it.
    web.BodyTooLarge: Code.RESOURCE_EXHAUSTED,
}


def code_of(error: RowwiseError) -> Code:
    """Return the status code of an error, by its class or the nearest base, else by its HTTP status."""
    for kind in type(error).__mro__:
        if kind in _BY_CLASS:
            return _BY_CLASS[kind]
    return BY_STATUS[status_of(error)]


def retry_metadata(error: RowwiseError) -> tuple[tuple[bytes, bytes], ...]:
    """Return when asking again may help: in seconds as HTTP says it, and in milliseconds as gRPC's retries read it."""
    if status_of(error) not in (429, 503):
        return ()
    seconds = retry_after_s(error)
    return (b"retry-after", b"%d" % seconds), (b"grpc-retry-pushback-ms", b"%d" % (seconds * 1_000))
