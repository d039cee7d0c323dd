"""The server's certificate: can it be used, and for how long.

It is shown to a client in memory that trusts just this one: so the key is proved to be its own, and the standard
library, which reads no certificates, tells its dates.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rowwise.doctor.finding import Finding, advice, fine, wrong
from server.settings import Settings
from server.tls import Tls

__all__ = ["Validity", "certificate_findings", "validity_findings", "validity_of"]

_DAY_S = 86_400.0
#: An authority that renews by itself does so a month before.
_SOON_S = 14 * _DAY_S
#: X509_V_FLAG_NO_CHECK_TIME (OpenSSL, x509_vfy.h): dates are for us to judge.
_NO_CHECK_TIME = 0x200000


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """From when to when, in seconds since 1970."""

    from_s: float
    until_s: float


def certificate_findings(settings: Settings, *, now_s: float) -> Iterator[Finding]:
    """Yield what is wrong with the files of TLS, if there are any."""
    try:
        tls = Tls.of(settings)
    except ValueError as error:
        yield wrong(
            "tls",
            str(error),
            why="the server does not start with it; one that runs keeps what it had",
            to_do="openssl x509 -in FILE -noout -text shows a certificate, openssl pkey -in FILE -noout a key",
        )
        return
    if tls is None or settings.tls_certificate is None:
        yield fine("tls", "not asked for: both ports speak in the clear")
        return
    try:
        validity = validity_of(settings.tls_certificate, settings.tls_key)
    except (ssl.SSLError, OSError) as error:
        yield wrong(
            "tls",
            f"a handshake with {settings.tls_certificate} fails: {error}",
            why="no client can connect",
            to_do="have the authority issue it again: it must be for a server",
        )
        return
    yield validity_findings(settings.tls_certificate, validity, now_s=now_s)


def validity_of(certificate: Path, key: Path | None) -> Validity:
    """Return the dates of the certificate that a server with these files shows. Errors: ssl.SSLError; OSError."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate, key)
    client_side = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_side.check_hostname = False
    client_side.load_verify_locations(certificate)
    client_side.verify_flags = ssl.VerifyFlags(_NO_CHECK_TIME | int(ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    client = client_side.wrap_bio(to_client, to_server)
    left = [client, server]
    while left:
        for end in list(left):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            left.remove(end)
    shown = client.getpeercert() or {}
    return Validity(
        from_s=ssl.cert_time_to_seconds(str(shown["notBefore"])),
        until_s=ssl.cert_time_to_seconds(str(shown["notAfter"])),
    )


def validity_findings(certificate: Path, validity: Validity, *, now_s: float) -> Finding:
    """Return whether it is valid now, and stays so for a while."""
    renew = "renew it and send the server SIGHUP: connections made from then on get the new one"
    if now_s > validity.until_s:
        ago = (now_s - validity.until_s) / _DAY_S
        what = f"the certificate in {certificate} expired {ago:.0f} days ago ({_date(validity.until_s)})"
        return wrong("tls", what, why="clients refuse to connect", to_do=renew)
    if now_s < validity.from_s:
        what = f"the certificate in {certificate} is valid from {_date(validity.from_s)}"
        return wrong("tls", what, why="clients refuse to connect until then", to_do="look at the clock first; " + renew)
    left_s = validity.until_s - now_s
    if left_s < _SOON_S:
        what = f"the certificate in {certificate} expires in {left_s / _DAY_S:.0f} days ({_date(validity.until_s)})"
        return advice("tls", what, why="clients refuse to connect after that", to_do=renew)
    return fine("tls", f"{certificate} is valid until {_date(validity.until_s)}")


def _date(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at_s))
