"""TLS for both ports: certificate, key and whose clients are let in, read again on SIGHUP for connections made later.

The context that a listening socket was given can't be exchanged. So it stands for the one in force: each handshake, as
soon as the client has greeted, is handed to that. Whether clients need a certificate is part of the first and stays.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from server.settings import Settings

__all__ = ["HANDSHAKE_S", "SHUTDOWN_S", "Tls"]

_log = logging.getLogger("rowwise")

#: Seconds in which a handshake must be over: until then nothing is known of the caller.
HANDSHAKE_S = 10.0
#: Seconds in which a caller is waited for to say that a connection is over.
SHUTDOWN_S = 1.0


class Tls:
    """The contexts of a process: ``http`` offers HTTP/1.1 to clients, ``grpc`` HTTP/2."""

    def __init__(self, settings: Settings) -> None:
        """Read the files. Errors: ValueError, which says which file is wrong, and how."""
        self._settings = settings
        self._in_force = {protocol: self._read(protocol) for protocol in ("http/1.1", "h2")}
        self.http = self._standing_for("http/1.1")
        self.grpc = self._standing_for("h2")

    @classmethod
    def of(cls, settings: Settings) -> Tls | None:
        """Return what the settings ask for; None: they ask for none. Errors: ValueError."""
        if settings.tls_certificate is None:
            for name in ("tls_key", "tls_client_ca"):
                if getattr(settings, name) is not None:
                    raise ValueError(f"{name} is set and tls_certificate is not: name the server's certificate too")
            return None
        return cls(settings)

    def renew(self) -> None:
        """Read the files again; those that can't be used leave everything as it was, and the log says why."""
        try:
            read = {protocol: self._read(protocol) for protocol in self._in_force}
        except ValueError as error:
            _log.error("SIGHUP: the certificate stays as it is: %s", error)
            return
        self._in_force.update(read)
        _log.info("SIGHUP: connections made from now on get the certificate in %s", self._settings.tls_certificate)

    def _standing_for(self, protocol: str) -> ssl.SSLContext:
        context = self._read(protocol)

        def hand_over(handshake: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            handshake.context = self._in_force[protocol]

        context.sni_callback = hand_over  # called for clients that name no server too
        return context

    def _read(self, protocol: str) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols([protocol])
        assert settings.tls_certificate is not None, "there is no TLS without one"
        _load_certificate(context, settings.tls_certificate, settings.tls_key)
        if settings.tls_client_ca is not None:
            _load_client_ca(context, settings.tls_client_ca)
        return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    _check_readable("tls_certificate", certificate)
    if key is not None:
        _check_readable("tls_key", key)
    where = f"tls_key {str(key)!r}" if key is not None else f"tls_certificate {str(certificate)!r}"

    def has_password() -> str:
        raise ValueError(f"{where}: the key is encrypted, and the server can't ask for its password; decrypt the file")

    try:
        context.load_cert_chain(certificate, key, password=has_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(
                f"{where}: it is not the key of the certificate in {str(certificate)!r}; name the two that were made "
                "together"
            ) from None
        if not _has_block(certificate, "CERTIFICATE"):
            raise ValueError(
                f"tls_certificate {str(certificate)!r}: expected a certificate in PEM, and its chain after it; "
                "found no -----BEGIN CERTIFICATE-----"
            ) from None
        if not _has_block(certificate if key is None else key, "PRIVATE KEY"):
            missing = "" if key is not None else ", or name its file as tls_key"
            raise ValueError(f"{where}: expected a private key in PEM, found none; add it{missing}") from None
        raise ValueError(f"{where}: the certificate or its key can't be used: {error.reason or error}") from None


def _load_client_ca(context: ssl.SSLContext, path: Path) -> None:
    _check_readable("tls_client_ca", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError:
        raise ValueError(
            f"tls_client_ca {str(path)!r}: expected the certificates of authorities in PEM, found none that can be used"
        ) from None
    context.verify_mode = ssl.CERT_REQUIRED
    # A session that is resumed would let a client in whose authority is trusted no more.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


def _check_readable(setting: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"{setting} {str(path)!r} can't be read: {error.strerror}; name a file that the server's user may read"
        ) from None


def _has_block(path: Path, kind: str) -> bool:
    return f"{kind}-----".encode() in path.read_bytes()
