"""The one table from error classes to HTTP status codes, and the answer that an error becomes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass

from server.batching import errors as batching
from server.build import errors as build
from server.engine import errors as engine
from server.errors import RowwiseError
from server.graph_checks import errors as graph_checks
from server.link import errors as link
from server.protocol import JSON, Body, Headers
from server.protocol import errors as protocol
from server.store import errors as store
from server.web import errors as web

__all__ = [
    "GONE",
    "JSON",
    "LATE",
    "OURS",
    "STATUS",
    "Reply",
    "allow_header",
    "error_body",
    "error_reply",
    "internal_error_reply",
    "options_reply",
    "retry_after_s",
    "status_of",
    "stopped_reply",
]

#: 499 is nginx's code for a caller that closed the connection: seen in logs and metrics only.
CLIENT_GONE = 499
OK = 200

#: What requests are counted under that end without an error of their own: the caller has left, the deadline has passed,
#: or it was a bug of ours. The first two are the classes' names where there is an error.
GONE = web.ClientGone.__name__
LATE = batching.DeadlineExceeded.__name__
OURS = "InternalError"

#: Every class that can reach a caller. A subclass that is missing here takes its base's code; a test wants all named.
STATUS: dict[type[RowwiseError], int] = {
    RowwiseError: 500,
    # Bytes that are not a request.
    protocol.ProtocolError: 400,
    protocol.EmptyRequest: 400,
    protocol.MalformedRequest: 400,
    protocol.RaggedOutput: 400,
    protocol.TooManyInstances: 413,
    protocol.UnknownSignature: 400,
    protocol.WrongDtype: 400,
    protocol.WrongKeys: 400,
    protocol.WrongShape: 400,
    # Requests that were not, or not successfully, executed.
    batching.BatchingError: 500,
    batching.Cancelled: CLIENT_GONE,
    batching.DeadlineExceeded: 504,
    batching.Draining: 503,
    batching.ExampleFailed: 400,
    batching.ExecutionFailed: 500,
    batching.ModelUnloaded: 503,
    batching.Overloaded: 503,
    batching.QueueFull: 429,
    batching.QueueTimeout: 429,
    batching.Refused: 503,
    batching.TooManyRows: 413,
    # Models and versions.
    store.StoreError: 500,
    store.Conflict: 409,
    store.ImportRefused: 400,
    store.InvalidLabel: 400,
    store.InvalidName: 400,
    store.ModelNotFound: 404,
    store.ModelNotReady: 503,
    store.NotAStore: 500,
    store.QuotaExceeded: 507,
    store.StoreDamaged: 500,
    store.StoreLocked: 503,
    store.StoreFull: 503,
    store.StoreUnreachable: 503,
    store.StoreUnwritable: 503,
    store.Superseded: 409,
    store.VersionNotFound: 404,
    store.VersionNotLoaded: 404,
    # Registrations. What the builder refuses is the caller's to change; that it died may not be.
    build.BuildError: 400,
    build.ArchiveDamaged: 400,
    build.ArchiveError: 400,
    build.ArchiveTooLarge: 413,
    build.ArchiveUnsafe: 400,
    build.BuildCrashed: 500,
    build.BuildDiskExceeded: 400,
    build.BuildFailed: 400,
    build.BuildMemoryExceeded: 400,
    build.BuildTimeout: 400,
    build.JailIncomplete: 501,
    build.NotASavedModel: 400,
    build.NotAnArchive: 400,
    build.SourceRefused: 400,
    # Artifacts that can't be served.
    engine.EngineError: 500,
    engine.ArtifactRefused: 500,
    engine.LoadFailed: 500,
    # Graphs that may not be loaded, as a builder says it; the engine says ArtifactRefused.
    graph_checks.GraphRefused: 400,
    graph_checks.FileNameRefused: 400,
    graph_checks.FilesRefused: 400,
    graph_checks.GraphDamaged: 400,
    graph_checks.GraphTooLarge: 413,
    graph_checks.OpRefused: 400,
    graph_checks.UnknownOp: 400,
    # The link between processes of the server.
    link.LinkError: 500,
    link.EngineGone: 503,
    link.LinkGarbled: 500,
    # HTTP itself.
    web.WebError: 400,
    web.AuditUnwritable: 503,
    web.BadHeader: 400,
    web.BodiesWaiting: 503,
    web.BodyDamaged: 400,
    web.BodyStalled: 408,
    web.BodyTimeout: 504,
    web.BodyTooLarge: 413,
    web.ClientGone: CLIENT_GONE,
    web.DerivativeNotDeclared: 400,
    web.EncodingNotSupported: 415,
    web.Forbidden: 403,
    web.HeadTimeout: 408,
    web.HeadTooLarge: 431,
    web.HttpVersionNotSupported: 505,
    web.IdempotencyKeyInUse: 409,
    web.IdempotencyKeyReused: 409,
    web.ImportNotAllowed: 403,
    web.LabelNotFound: 404,
    web.MalformedHttp: 400,
    web.MethodNotAllowed: 405,
    web.NoConnectionLeft: 503,
    web.NotOffered: 501,
    web.PathNotFound: 404,
    web.RateLimited: 429,
    web.RegistrationFailed: 400,
    web.RegistrationRefused: 400,
    web.SourceNotEnabled: 403,
    web.TargetTooLong: 414,
    web.TokenExpired: 401,
    web.TransferCodingNotSupported: 501,
    web.Unauthorized: 401,
    web.UploadConflict: 409,
    web.UploadNotFound: 404,
    web.VersionMalformed: 400,
    web.ViewersFull: 503,
}


@dataclass(slots=True, eq=False)
class Reply:
    """An HTTP answer: what any front end has to send. Headers are lower-case bytes, without content-length.

    ``error`` is what was refused, for front ends that say it in another way; None too where the error is one of ours.
    """

    status: int
    body: Body
    headers: Headers = (JSON,)
    error: RowwiseError | None = None

    @property
    def reason(self) -> str:
        """What a request that got this is counted under: the error's class, ``OURS``, or nothing if it was answered."""
        if self.error is not None:
            return type(self.error).__name__
        return OURS if self.status >= 500 else ""


def status_of(error: RowwiseError) -> int:
    """Return the status code of an error, by its class or the nearest base in the table."""
    for kind in type(error).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    raise AssertionError("RowwiseError itself is in the table")


def error_body(sentence: str, details: dict[str, object] | None = None) -> bytes:
    """Return ``{"error": sentence}``, with more keys where there are details."""
    # ASCII, so that no text that a caller sent can make bytes that are not UTF-8.
    return json.dumps({"error": sentence, **(details or {})}).encode("ascii")


def error_reply(error: RowwiseError) -> Reply:
    """Return the answer for an expected error, with the headers that its code asks for."""
    status = status_of(error)
    headers = [JSON]
    if status in {429, 503}:
        headers.append((b"retry-after", b"%d" % retry_after_s(error)))
    elif status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    elif isinstance(error, web.MethodNotAllowed):
        headers.append((b"allow", allow_header(error.allow)))
    elif status == 415:
        headers.append((b"accept-encoding", b"gzip, deflate"))
    details = error.details if isinstance(error, web.RegistrationFailed) else None
    return Reply(status, error_body(str(error), details), tuple(headers), error)


def allow_header(methods: Iterable[str]) -> bytes:
    """Return the header Allow: HEAD is answered wherever GET is, and OPTIONS everywhere."""
    allowed = {*methods, "OPTIONS"}
    return ", ".join(sorted(allowed | {"HEAD"} if "GET" in allowed else allowed)).encode("latin-1")


def options_reply(methods: Iterable[str]) -> Reply:
    """Return the answer to OPTIONS. It lets no browser do more: there is nothing of CORS in it."""
    return Reply(200, b"", ((b"allow", allow_header(methods)),))


def internal_error_reply(request_id: str) -> Reply:
    """Return the answer for an error of ours: the caller learns where to look, not what it says."""
    return Reply(500, error_body(f"internal error: the server's log says more under request id {request_id}"))


def stopped_reply() -> Reply:
    """Return the answer for a request that the server could not finish before it had to end."""
    return error_reply(batching.Draining("the server has to end before this is answered: ask another one"))


def retry_after_s(error: RowwiseError) -> int:
    """Return after how many whole seconds asking again may help, at least 1: from the queue if the error knows it."""
    seconds = getattr(error, "retry_after_s", 1.0)
    return max(1, math.ceil(seconds)) if math.isfinite(seconds) else 1
