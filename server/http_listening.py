"""Sockets that listen for callers, bound before anything else is done, so that a port in use is said at once."""

from __future__ import annotations

import socket

__all__ = ["BACKLOG", "bind_beside", "listen", "listen_shared", "reserve"]

#: Connections that the kernel holds until they are accepted; a burst of callers must not see a refusal.
BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Errors: ValueError with the reason."""
    listener = _bound(host, port, shared=False)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def listen_shared(host: str, port: int, *, n: int) -> list[socket.socket]:
    """Return ``n`` sockets that listen on one port; the kernel spreads connections over them by their addresses.

    Errors: ValueError with the reason, also where another server shares its port in the same way.
    """
    # Only one that does not share finds out that somebody else listens.
    with _bound(host, port, shared=False) as probe:
        port = probe.getsockname()[1]
    listeners = [bind_beside(host, port) for _ in range(n)]
    for listener in listeners:
        listener.listen(BACKLOG)
    return listeners


def bind_beside(host: str, port: int) -> socket.socket:
    """Return one more socket for a port that is shared already, which gets connections once somebody listens on it.

    Errors: ValueError with the reason.
    """
    listener = _bound(host, port, shared=True)
    listener.setblocking(False)
    return listener


def reserve(host: str, port: int, *, option: str) -> socket.socket:
    """Return a socket that holds a port for somebody who listens on it later; connections are refused until then.

    Errors: ValueError with the reason, which names the ``option`` that chooses another.
    """
    return _bound(host, port, shared=False, option=option)


def _bound(host: str, port: int, *, shared: bool, option: str = "--port") -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        reason = f"can't listen on {host}:{port}: {error.strerror}; choose another {option} or --host"
        raise ValueError(reason) from None
    return listener
