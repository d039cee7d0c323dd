"""Everything that the client raises on purpose.

::

    RowwiseClientError
    ├── BadAnswer             the answer is not one of a Rowwise server
    ├── BuildFailed           the server could not build the registered model; .reason
    ├── CannotLoad            what MODULE:FUNCTION or PATH names is not there
    ├── CannotTrace           the function could not be traced or saved
    ├── ConnectionFailed      no connection, or it broke
    │   └── NotConnected      ... none was made, so that the server knows nothing of the request
    ├── Superseded            another version took over before this one was available
    ├── TimedOut              no answer in time
    │   └── DeadlineExceeded  ... says the server (504)
    ├── WrongInputs           the example's inputs are not the model's
    └── ServerRefused         the server answered with an error; .status, .message
        ├── Conflict          409
        ├── DeadlineExceeded  504
        ├── InvalidRequest    400, 405, 422
        │   └── TooLarge      413
        ├── NotFound          404: unknown model or version
        ├── Overloaded        429 and 503; .retry_after_s
        ├── ServerFailed      500 and other 5xx
        ├── Unauthorized      401 and 403
        └── Unsupported       501
"""

from __future__ import annotations

__all__ = [
    "BadAnswer",
    "BuildFailed",
    "CannotLoad",
    "CannotTrace",
    "Conflict",
    "ConnectionFailed",
    "DeadlineExceeded",
    "InvalidRequest",
    "NotConnected",
    "NotFound",
    "Overloaded",
    "RowwiseClientError",
    "ServerFailed",
    "ServerRefused",
    "Superseded",
    "TimedOut",
    "TooLarge",
    "Unauthorized",
    "Unsupported",
    "WrongInputs",
    "refusal",
]


class RowwiseClientError(Exception):
    """An expected failure. ``str(error)`` is a sentence: where, expected, got, what to do."""


class BadAnswer(RowwiseClientError):
    """The answer can't be understood: is it a Rowwise server that listens there?"""


class BuildFailed(RowwiseClientError):
    """The registration was taken but the model could not be built. ``reason`` is the server's sentence."""

    def __init__(self, model: str, version: int, reason: str) -> None:
        super().__init__(f"model {model!r} version {version} could not be built: {reason}")
        self.model = model
        self.version = version
        self.reason = reason


class CannotLoad(RowwiseClientError):
    """A module, function, directory or archive that was named is not there, or not what it should be."""


class CannotTrace(RowwiseClientError):
    """The function could not be traced for one example, or its graph not be saved."""


class ConnectionFailed(RowwiseClientError):
    """The server could not be reached, or the connection broke before the answer was complete."""


class NotConnected(ConnectionFailed):
    """No connection could be made: the server has not received the request."""


class Superseded(RowwiseClientError):
    """The version was built, but another one took its place before it was seen to be available."""


class TimedOut(RowwiseClientError):
    """No answer in time. Whether the server did the work is unknown."""


class WrongInputs(RowwiseClientError):
    """The inputs of an example are not those of the model, or hold what no request can carry."""


class ServerRefused(RowwiseClientError):
    """The server answered with an error. ``status`` is the HTTP status, ``message`` its sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Conflict(ServerRefused):
    """409: the model's state does not allow it now."""


class DeadlineExceeded(ServerRefused, TimedOut):
    """504: the request's deadline passed before it was answered. It was not executed after that."""


class InvalidRequest(ServerRefused):
    """400: the request is not what the model takes; the message names the input and the example."""


class TooLarge(InvalidRequest):
    """413: the body, the archive or the number of examples is over the server's limit."""


class NotFound(ServerRefused):
    """404: no such model or version."""


class Overloaded(ServerRefused):
    """429 or 503: refused at once because it can't be served in time. Retry after ``retry_after_s`` seconds."""

    def __init__(self, status: int, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(status, message)
        self.retry_after_s = retry_after_s


class ServerFailed(ServerRefused):
    """5xx: a fault of the server."""


class Unauthorized(ServerRefused):
    """401 or 403: a token is missing, wrong, or doesn't allow this."""


class Unsupported(ServerRefused):
    """501: this server doesn't offer that; the message says what to use instead."""


_BY_STATUS: dict[int, type[ServerRefused]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    405: InvalidRequest,
    409: Conflict,
    413: TooLarge,
    422: InvalidRequest,
    501: Unsupported,
    504: DeadlineExceeded,
}


def refusal(status: int, message: str, *, retry_after: str | None = None) -> ServerRefused:
    """Return the error for an HTTP status that isn't a success. ``retry_after`` is that header's value."""
    if status in {429, 503}:
        return Overloaded(status, message, retry_after_s=_seconds(retry_after))
    if status in _BY_STATUS:
        return _BY_STATUS[status](status, message)
    return (ServerFailed if status >= 500 else ServerRefused)(status, message)


def _seconds(retry_after: str | None) -> float | None:
    """Read Retry-After's seconds; its other form, a date, is not one that a Rowwise server sends."""
    try:
        seconds = float(retry_after or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
