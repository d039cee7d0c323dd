"""Until when a certificate is valid. The standard library verifies certificates and shows only those of peers.

A certificate is DER (X.690): nested (tag, length, value). What is wanted lies in a fixed place (RFC 5280, section 4.1):
the second time of ``validity``, which is the fourth field of ``tbsCertificate`` behind the optional version.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["not_after_s"]

_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
_END = "-----END CERTIFICATE-----"


def not_after_s(path: Path) -> float:
    """Return when the first certificate of a PEM file ends, in seconds since 1970. Errors: OSError; ValueError."""
    text = path.read_text(encoding="ascii", errors="replace")
    start = text.find("-----BEGIN CERTIFICATE-----")
    end = text.find(_END, start)
    if start < 0 or end < 0:
        raise ValueError(f"{str(path)!r} holds no certificate in PEM")
    try:
        return _not_after(ssl.PEM_cert_to_DER_cert(text[start : end + len(_END)])).timestamp()
    except (IndexError, StopIteration, ValueError) as error:
        raise ValueError(f"the certificate in {str(path)!r} is damaged: {error}") from None


def _not_after(der: bytes) -> datetime:
    _, certificate = next(_elements(der))
    _, to_be_signed = next(_elements(certificate))
    fields = [element for element in _elements(to_be_signed) if element[0] != _VERSION]
    _, validity = fields[3]
    tag, value = list(_elements(validity))[1]
    if tag not in {_UTC_TIME, _GENERALIZED_TIME}:
        raise ValueError(f"expected a time, found tag {tag:#x}")
    text = value.decode("ascii")
    if tag == _UTC_TIME:
        # RFC 5280, section 4.1.2.5.1: two digits of a year are of 1950 to 2049.
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and the value of each element, one after the other."""
    place = 0
    while place < len(der):
        tag, length = der[place], der[place + 1]
        place += 2
        if length & 0x80:
            n_bytes = length & 0x7F
            length = int.from_bytes(der[place : place + n_bytes])
            place += n_bytes
        if place + length > len(der):
            raise ValueError("it ends too soon")
        yield tag, der[place : place + length]
        place += length
