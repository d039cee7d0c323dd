"""What HTTP itself has to refuse, before or beside the core.

::

    RowwiseError
    └── WebError
        ├── AuditUnwritable      what changes something can't be put into the audit log
        ├── BadHeader            a header that can't be read
        ├── BodiesWaiting        too many bytes of bodies are being received
        ├── BodyDamaged          a compressed body that can't be inflated
        ├── BodyStalled          nothing of an upload has come for too long
        ├── BodyTimeout          the body did not come before the request's deadline
        ├── BodyTooLarge         body, archive or specification over its limit
        ├── ClientGone           the caller closed the connection; nobody reads the answer
        ├── DerivativeNotDeclared   no derivative fits the request, or several do
        ├── EncodingNotSupported a Content-Encoding that is not read
        ├── Forbidden            the token's rights don't reach so far; or there is none, and the caller is not local
        ├── HeadTimeout          a request's head did not come whole in its time
        ├── HeadTooLarge         more or longer headers than one request may have
        ├── HttpVersionNotSupported  neither HTTP/1.0 nor HTTP/1.1
        ├── IdempotencyKeyInUse  a registration under the key has not ended yet
        ├── IdempotencyKeyReused the key was used for something else
        ├── ImportNotAllowed     an import path outside of the operator's packages
        ├── LabelNotFound        no version carries that label
        ├── MalformedHttp        not HTTP/1.1, or not in a way that all read alike
        ├── MethodNotAllowed     the path exists, not for this method
        ├── NoConnectionLeft     all connections are taken, and in use
        ├── NotOffered           a verb that this server answers in no form
        ├── PathNotFound         no such path
        ├── RateLimited          the token's requests or rows come too fast
        ├── RegistrationFailed   ?wait=true, and the build ended without a model
        ├── RegistrationRefused  the specification or its envelope is wrong
        ├── SourceNotEnabled     source text, where the operator didn't enable it
        ├── TargetTooLong        a longer URL than a request may have
        ├── TransferCodingNotSupported  a Transfer-Encoding other than chunked
        ├── UploadConflict       an upload in pieces is not where the caller thinks, or there are too many
        ├── UploadNotFound       no such upload, or not any more
        ├── Unauthorized         the token is missing or wrong
        │   └── TokenExpired     the token was right until it ended
        ├── VersionMalformed     a version that is no number
        └── ViewersFull          as many watch the console's events as may
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.errors import RowwiseError

__all__ = [
    "AuditUnwritable",
    "BadHeader",
    "BodiesWaiting",
    "BodyDamaged",
    "BodyStalled",
    "BodyTimeout",
    "BodyTooLarge",
    "ClientGone",
    "DerivativeNotDeclared",
    "EncodingNotSupported",
    "Forbidden",
    "HeadTimeout",
    "HeadTooLarge",
    "HttpVersionNotSupported",
    "IdempotencyKeyInUse",
    "IdempotencyKeyReused",
    "ImportNotAllowed",
    "LabelNotFound",
    "MalformedHttp",
    "MethodNotAllowed",
    "NoConnectionLeft",
    "NotOffered",
    "PathNotFound",
    "RateLimited",
    "RegistrationFailed",
    "RegistrationRefused",
    "SourceNotEnabled",
    "TargetTooLong",
    "TokenExpired",
    "TransferCodingNotSupported",
    "Unauthorized",
    "UploadConflict",
    "UploadNotFound",
    "VersionMalformed",
    "ViewersFull",
    "WebError",
]


class WebError(RowwiseError):
    """Anything that the web layer refuses on its own account."""


class AuditUnwritable(WebError):
    """Nothing is changed that can't be accounted for."""

    def __init__(self, fault: str) -> None:
        super().__init__(f"the audit log can't be written ({fault}), so models can't be managed now; predictions go on")


class BadHeader(WebError):
    """A header whose value can't be used."""


class BodiesWaiting(WebError):
    """More bytes of unfinished bodies than the server may hold. Somebody's must go; trying again later can help."""

    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(
            f"the bodies that are being received have more than {limit_bytes} bytes (max_receiving_bytes); "
            "try again in a moment"
        )


class BodyDamaged(WebError):
    """The body is not what its Content-Encoding says, or not all of it."""

    def __init__(self, encoding: str, fault: str) -> None:
        super().__init__(f"the body can't be inflated as Content-Encoding {encoding!r} says: {fault}")


class BodyStalled(WebError):
    """A body stopped coming."""

    def __init__(self, stall_s: float) -> None:
        super().__init__(f"nothing of the body came for {stall_s:g} s; send it again without a break")


class BodyTimeout(WebError):
    """The request's deadline passed while its body was on its way."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(
            f"the body was not complete {timeout_s:g} s after the request's headers, which is its deadline; "
            "send it quicker or allow it more time"
        )


class BodyTooLarge(WebError):
    """More bytes than a limit allows. The sentence names the setting."""

    def __init__(self, what: str, *, limit_bytes: int, setting: str) -> None:
        super().__init__(f"{what} is over the limit of {limit_bytes} bytes ({setting})")
        self.limit_bytes = limit_bytes


class ClientGone(WebError):
    """The caller closed the connection before its answer."""


class DerivativeNotDeclared(WebError):
    """The model declares no derivative that fits the request, or more than one. The sentence lists them."""


class EncodingNotSupported(WebError):
    """The body is compressed in a way that is not read here."""

    def __init__(self, encoding: str) -> None:
        super().__init__(
            f"Content-Encoding {encoding[:40]!r} is not supported: send the body as gzip or deflate, or uncompressed"
        )


class Forbidden(WebError):
    """The caller may not do this, whatever it sends. ``who``: the name of its token."""

    who = "anybody"

    def __init__(self, sentence: str, *, who: str = "anybody") -> None:
        super().__init__(sentence)
        self.who = who


class HeadTimeout(WebError):
    """The head of a request came too slowly."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the request's headers were not complete after {timeout_s:g} s (head_timeout_s)")


class HeadTooLarge(WebError):
    """More headers than are read."""

    def __init__(self, *, limit_bytes: int, limit_headers: int) -> None:
        super().__init__(f"the request's head is over {limit_bytes} bytes or {limit_headers} headers; send fewer")


class HttpVersionNotSupported(WebError):
    """A request of another version of HTTP."""

    def __init__(self, version: str) -> None:
        super().__init__(f"HTTP/{version[:9]} is not spoken on this port: use HTTP/1.1")


class IdempotencyKeyInUse(WebError):
    """The same registration is being taken in on another connection."""

    def __init__(self) -> None:
        super().__init__("a registration under this Idempotency-Key is being taken in: send it again in a moment")


class IdempotencyKeyReused(WebError):
    """A key stands for one registration."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"this Idempotency-Key was used for version {version}, which was registered with another content: take a "
            "new key for each registration"
        )


class ImportNotAllowed(WebError):
    """The import path's package is not one that the operator allowed."""

    def __init__(self, target: str, packages: Sequence[str]) -> None:
        allowed = f"allowed are {', '.join(packages)}" if packages else "none is allowed"
        super().__init__(
            f"import path {target!r} is outside of the packages that may be imported ({allowed}): "
            "start the server with its package among import_packages"
        )


class LabelNotFound(WebError):
    """No version of the model carries that label."""

    def __init__(self, model: str, label: str, known: Sequence[str]) -> None:
        has = f"it has {', '.join(map(repr, known))}" if known else "it has none"
        super().__init__(f"model {model!r} has no version with the label {label!r}; {has}")


class MalformedHttp(WebError):
    """Bytes that are no request, or that can be read as two. ``data`` may tell what was meant."""

    def __init__(self, fault: str, data: bytes = b"") -> None:
        if data.startswith(b"\x16\x03"):
            meant = (
                "a TLS handshake came to a port without TLS: use http://, or start the server with --tls-certificate"
            )
        elif data.startswith(b"PRI * HTTP/2"):
            meant = "HTTP/2 came to the port of HTTP/1.1: gRPC has a port of its own (--grpc-port)"
        else:
            meant = f"this is no request of HTTP/1.1 that can be read in one way only: {fault}"
        super().__init__(meant)


class MethodNotAllowed(WebError):
    """The path is right, the method is not. ``allow`` becomes the header of that name."""

    def __init__(self, method: str, path: str, *, allow: Sequence[str]) -> None:
        super().__init__(f"{method} is not allowed for {path}; use {' or '.join(allow)}")
        self.allow = tuple(allow)


class NoConnectionLeft(WebError):
    """Nobody can be let in. Trying again can help: connections are closed when they have been idle for a while."""

    def __init__(self) -> None:
        super().__init__(
            "all connections that the server can hold are in use (max_connections, or file descriptors: ulimit -n)"
        )


class NotOffered(WebError):
    """Part of the protocol that this server doesn't offer for this model."""


class PathNotFound(WebError):
    """Nothing is served at that path."""


class RateLimited(WebError):
    """A token's limit of rate is reached. ``unit`` is what is counted: requests, or rows of predictions."""

    who = "anybody"

    def __init__(self, who: str, unit: str, *, retry_after_s: float) -> None:
        super().__init__(f"token {who!r} has sent its {unit} faster than it may: wait {retry_after_s:.3g} s")
        self.who = who
        self.retry_after_s = retry_after_s


class RegistrationFailed(WebError):
    """The awaited build ended without a model. ``details`` joins the answer beside ``error``."""

    def __init__(self, reason: str, *, details: dict[str, Any]) -> None:
        super().__init__(reason or "the build failed without a reason")
        self.details = details


class RegistrationRefused(WebError):
    """The registration can't be understood: its form, or what it asks for."""


class SourceNotEnabled(WebError):
    """Registration from source text needs the operator's consent."""

    def __init__(self) -> None:
        super().__init__(
            "registration from 'source' is not enabled on this server: upload a SavedModel archive, or name an "
            "'import_path' that the operator allowed; the operator enables it with --allow-source"
        )


class TargetTooLong(WebError):
    """A URL that no path of this server needs."""

    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(f"the request's target is over {limit_bytes} bytes")


class TransferCodingNotSupported(WebError):
    """A body in a coding that this server does not undo."""

    def __init__(self, coding: str) -> None:
        super().__init__(
            f"Transfer-Encoding {coding[:40]!r} is not supported: send 'chunked', and compression as Content-Encoding"
        )


class Unauthorized(WebError):
    """The token is missing or not the right one."""

    #: What logs call who has none.
    who = "anybody"


class TokenExpired(Unauthorized):
    """The token was for a time, which is over. ``who`` had it."""

    def __init__(self, who: str, when: str) -> None:
        super().__init__(f"token {who!r} expired on {when}: ask for a new one")
        self.who = who


class UploadConflict(WebError):
    """An upload in pieces can't go on like this."""


class UploadNotFound(WebError):
    """No upload in pieces has that name, or it was registered, deleted, or left alone for a day."""

    def __init__(self, upload_id: str) -> None:
        super().__init__(f"there is no upload {upload_id[:40]!r}: it was registered or removed; begin another")


class VersionMalformed(WebError):
    """A version in a path that is no positive number."""

    def __init__(self, version: str) -> None:
        shown = version if len(version) <= 40 else version[:37] + "..."
        super().__init__(f"version {shown!r} is no version number: versions are 1, 2, 3, ...")


class ViewersFull(WebError):
    """No more may watch what goes on. Trying again can help: somebody leaves."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} consoles watch already, which is as many as may: close one")
