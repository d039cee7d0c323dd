"""What HTTP itself has to refuse, before or beside the core.

::

    RowwiseError
    └── WebError
        ├── BadHeader            a header that can't be read
        ├── BodiesWaiting        too many bytes of bodies are being received
        ├── BodyDamaged          a compressed body that can't be inflated
        ├── BodyStalled          nothing of an upload has come for too long
        ├── BodyTimeout          the body did not come before the request's deadline
        ├── BodyTooLarge         body, archive or specification over its limit
        ├── ClientGone           the caller closed the connection; nobody reads the answer
        ├── DerivativeNotDeclared   no derivative fits the request, or several do
        ├── EncodingNotSupported a Content-Encoding that is not read
        ├── Forbidden            no token is configured, and the caller is not local
        ├── ImportNotAllowed     an import path outside of the operator's packages
        ├── LabelNotFound        no version carries that label
        ├── MethodNotAllowed     the path exists, not for this method
        ├── NotOffered           a verb that this server answers in no form
        ├── PathNotFound         no such path
        ├── RegistrationFailed   ?wait=true, and the build ended without a model
        ├── RegistrationRefused  the specification or its envelope is wrong
        ├── SourceNotEnabled     source text, where the operator didn't enable it
        ├── Unauthorized         the token is missing or wrong
        └── VersionMalformed     a version that is no number
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.errors import RowwiseError

__all__ = [
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
    "ImportNotAllowed",
    "LabelNotFound",
    "MethodNotAllowed",
    "NotOffered",
    "PathNotFound",
    "RegistrationFailed",
    "RegistrationRefused",
    "SourceNotEnabled",
    "Unauthorized",
    "VersionMalformed",
    "WebError",
]


class WebError(RowwiseError):
    """Anything that the web layer refuses on its own account."""


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
    """The caller may not do this, whatever it sends."""


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


class MethodNotAllowed(WebError):
    """The path is right, the method is not. ``allow`` becomes the header of that name."""

    def __init__(self, method: str, path: str, *, allow: Sequence[str]) -> None:
        super().__init__(f"{method} is not allowed for {path}; use {' or '.join(allow)}")
        self.allow = tuple(allow)


class NotOffered(WebError):
    """Part of the protocol that this server doesn't offer for this model."""


class PathNotFound(WebError):
    """Nothing is served at that path."""


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
            "registration from 'source' is not enabled on this server: upload a SavedModel archive, "
            "or name an 'import_path' that the operator allowed"
        )


class Unauthorized(WebError):
    """The token is missing or not the right one."""


class VersionMalformed(WebError):
    """A version in a path that is no positive number."""

    def __init__(self, version: str) -> None:
        shown = version if len(version) <= 40 else version[:37] + "..."
        super().__init__(f"version {shown!r} is no version number: versions are 1, 2, 3, ...")
