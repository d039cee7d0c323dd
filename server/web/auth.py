"""Who may do what: a token, or without one the machine's own users and no browser."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable

from server.web.errors import Forbidden, Unauthorized

__all__ = ["Gate"]

#: Headers that a proxy adds. Behind a proxy on this machine every caller looks local, and none is known to be.
_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})


class Gate:
    """Lets a request pass, or raises.

    With a token: ``Authorization: Bearer TOKEN`` or ``X-API-Key: TOKEN``, from anywhere. Without one: loopback
    peers, where neither a browser's Origin nor a proxy's header is present.
    """

    def __init__(self, token: str | None) -> None:
        self.change(token)

    def change(self, token: str | None) -> None:
        """Go by another token from now on."""
        self._token = token.encode() if token else None

    def check(self, headers: Iterable[tuple[bytes, bytes]], client: tuple[str, int] | None) -> None:
        """Errors: Unauthorized where a token would help, Forbidden where none can."""
        if self._token is None:
            self._check_local(headers, client)
            return
        offered: bytes | None = None
        for name, value in headers:
            if name == b"authorization":
                scheme, _, credentials = value.partition(b" ")
                if scheme.lower() == b"bearer":
                    offered = credentials.strip()
            elif name == b"x-api-key":
                offered = value.strip()
            if offered is not None and hmac.compare_digest(offered, self._token):
                return
        if offered is None:
            raise Unauthorized("a token is needed: send 'Authorization: Bearer TOKEN' or 'X-API-Key: TOKEN'")
        raise Unauthorized("the token is not the right one")

    def _check_local(self, headers: Iterable[tuple[bytes, bytes]], client: tuple[str, int] | None) -> None:
        if client is None or not _is_loopback(client[0]):
            raise Forbidden(
                "no token is configured, so only callers on this machine may do this: start the server with a token"
            )
        names = {name for name, _ in headers}
        if b"origin" in names:
            raise Forbidden(
                "no token is configured, so browsers (requests with an Origin) may not do this: "
                "start the server with a token"
            )
        if names & _FORWARDED:
            raise Forbidden(
                "no token is configured, so callers behind a proxy may not do this: start the server with a token"
            )


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
