"""Where a request comes from, as far as its head tells: this machine, a proxy, or a page in a browser.

A page that somebody on this machine has open can send requests to the server: simple ones from any origin, and, once
its own name is made to point here (DNS rebinding), all that it likes. Where a token guards, it lacks the token. Where
there is none, what a browser adds gives it away (Origin, Sec-Fetch-Site), or the name that it believes the server to
have, or that it sends what a form can.

One page is let through: the console, which this server sends itself. It says so in a header, which a page of another
origin could add only after asking (a CORS preflight, which is never granted); and its Origin has to be the very host,
with the port, that the request is for.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache

from server.web.errors import Forbidden

__all__ = ["CONSOLE_HEADER", "Headers", "check_host", "check_local"]

Headers = Iterable[tuple[bytes, bytes]]

#: Headers that a proxy adds. Behind a proxy on this machine every caller looks local, and none is known to be.
_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})
#: What the console adds to its requests.
CONSOLE_HEADER = b"x-rowwise-console"
_BY_FORMS = frozenset({b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain"})
#: A name in the DNS has 253 at most, and a port follows.
_MAX_HOST_BYTES = 260
#: What browsers say of a request that a person made by typing an address.
_TYPED = b"none"
_SAME_ORIGIN = b"same-origin"
_NO_GUARD = "no token is configured, so {0} may not do this: start the server with a token"


def check_local(
    headers: Headers,
    client: tuple[str, int] | None,
    *,
    names: frozenset[str],
    is_post: bool,
    has_console: bool = False,
) -> None:
    """Let programs of this machine pass, and its console. Errors: Forbidden.

    ``names``: the server's own besides those of loopback. ``has_console``: it sends that page.
    """
    if client is None or not _is_loopback(client[0]):
        raise Forbidden(
            "no token is configured, so only callers on this machine may do this: start the server with a token"
        )
    found = {name: value for name, value in headers if name != b":authority"}
    is_own_page = has_console and _is_console(found)
    if b"origin" in found and not is_own_page:
        raise Forbidden(_NO_GUARD.format("browsers (requests with an Origin)"))
    if found.get(b"sec-fetch-site", _TYPED) != _TYPED and not is_own_page:
        raise Forbidden(_NO_GUARD.format("pages in a browser (requests with Sec-Fetch-Site)"))
    if found.keys() & _FORWARDED:
        raise Forbidden(_NO_GUARD.format("callers behind a proxy"))
    content_type = found.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if is_post and content_type in _BY_FORMS:
        raise Forbidden(
            f"no token is configured, so what a form in a browser could send ({content_type.decode()}) is refused: "
            "send Content-Type: application/json, or start the server with a token"
        )
    check_host(headers, names=names)


def _is_console(found: Mapping[bytes, bytes]) -> bool:
    """Return whether a browser says that it is a page of this server that asks, and the page that it is the console."""
    if CONSOLE_HEADER not in found or found.get(b"sec-fetch-site", _SAME_ORIGIN) != _SAME_ORIGIN:
        return False
    origin = found.get(b"origin")
    return origin is None or origin.lower().partition(b"://")[2] == found.get(b"host", b"").lower() != b""


def check_host(headers: Headers, *, names: frozenset[str]) -> None:
    """Let requests pass that mean this server: by ``names``, in small letters, or a loopback one. Errors: Forbidden."""
    told = [value for name, value in headers if name in (b"host", b":authority")]
    for host in told:
        # Longer ones are no names, and would be remembered.
        if len(host) > _MAX_HOST_BYTES or not _is_ours(host, names):
            raise Forbidden(
                f"the request is for {host[:80].decode('latin-1')!r}, which is no name of this server: "
                "list it in the setting 'host_names'"
            )


@lru_cache(maxsize=1_024)
def _is_ours(host: bytes, names: frozenset[str]) -> bool:
    name = _without_port(host.decode("latin-1").lower())
    return name in names or name == "localhost" or name.endswith(".localhost") or _is_loopback(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".")


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
