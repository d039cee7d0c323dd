"""SHA-256 of what is uploaded, and what the sender says it must be.

Source: RFC 9530, "Digest Fields": ``Repr-Digest: sha-256=:<base64>:``.
"""

from __future__ import annotations

import base64
import binascii
import re

from server.web.errors import RegistrationRefused

__all__ = ["check_digest", "read_digest"]

_MEMBER = re.compile(r"\s*([a-z0-9*][a-z0-9_.*-]*)\s*=\s*:([A-Za-z0-9+/=]*):\s*")
_SHA256_BYTES = 32


def read_digest(header: bytes | None) -> str | None:
    """Return the SHA-256 that a ``Repr-Digest`` says, in hexadecimal; None without a header.

    Errors: RegistrationRefused if it has none or can't be read: whoever sends it counts on its being checked.
    """
    if header is None:
        return None
    members = [_MEMBER.fullmatch(part) for part in header.decode("latin-1").split(",")]
    for member in members:
        if member is not None and member[1] == "sha-256":
            try:
                digest = base64.b64decode(member[2], validate=True)
            except binascii.Error:
                break
            if len(digest) == _SHA256_BYTES:
                return digest.hex()
    raise RegistrationRefused("Repr-Digest is checked by its sha-256 alone: send sha-256=:BASE64:, or no Repr-Digest")


def check_digest(expected: str | None, sha256: str) -> None:
    """Errors: RegistrationRefused if the upload is not what its sender says."""
    if expected is not None and expected != sha256:
        raise RegistrationRefused(
            f"the upload's SHA-256 is {sha256}, and Repr-Digest says {expected}: it changed on its way; send it again"
        )
