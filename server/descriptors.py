"""File descriptors: a connection takes one, and the server needs some for itself.

Without a bound, callers can take them all: then nothing can be accepted, no model be loaded and no registration
stored. So some are kept back, and who comes when the others are taken is told so (503) and sent away.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Sized

__all__ = ["connections_allowed", "grpc_connections_allowed", "raise_limit", "with_room"]

#: Kept for the server's own needs: the store, builders and their pipes, loading, the link between processes.
_OWN = 128
_LEAST_CONNECTIONS = 16
#: More are of no use, and some limits are "infinity".
_MOST = 2**20

_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s"
)
_SENTENCE = b'{"error": "all connections that the server can hold are taken (file descriptors, ulimit -n)"}'
#: Seconds that who is sent away has to read why. A connection that is closed on unread bytes takes the answer with it.
_LINGER_S = 0.5


def raise_limit() -> int:
    """Take as many descriptors as this process may have without asking anybody; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return _MOST if soft == resource.RLIM_INFINITY else soft


def connections_allowed(limit: int) -> int:
    """Return how many connections fit beside what the server needs itself, at least a few."""
    return max(_LEAST_CONNECTIONS, limit - max(_OWN, limit // 8))


def grpc_connections_allowed(limit: int) -> int:
    """Return how many of the connections gRPC's may be: few, as each carries many calls at once."""
    return max(_LEAST_CONNECTIONS // 2, connections_allowed(limit) // 8)


def with_room(
    make: Callable[..., asyncio.Protocol], *, most: int, linger_s: float = _LINGER_S
) -> Callable[..., asyncio.Protocol]:
    """Return what makes a connection's protocol: ``make`` for as many as ``most``, for others one that says 503."""
    leaving: set[_NoRoom] = set()

    def protocol(*, server_state: _ServerState, **options: object) -> asyncio.Protocol:
        if len(server_state.connections) < most:
            return make(server_state=server_state, **options)
        # Those that linger take descriptors too.
        return _NoRoom(leaving, linger_s if len(leaving) < _LEAST_CONNECTIONS else 0.0)

    return protocol


class _ServerState:
    connections: Sized


class _NoRoom(asyncio.Protocol):
    """Says that there is no room, and closes once the caller has sent something, or after a moment."""

    def __init__(self, leaving: set[_NoRoom], linger_s: float) -> None:
        self._leaving = leaving
        self._linger_s = linger_s

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._leaving.add(self)
        transport.write(_BUSY % (len(_SENTENCE), _SENTENCE))
        asyncio.get_running_loop().call_later(self._linger_s, transport.close)

    def data_received(self, _data: bytes) -> None:
        self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        self._leaving.discard(self)
