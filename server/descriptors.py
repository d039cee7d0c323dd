"""File descriptors: a connection takes one, and the server needs some for itself.

Without a bound, callers can take them all: then nothing can be accepted, no model be loaded and no registration
stored. So some are kept back (``server.web.crowding`` says what becomes of who comes when the others are taken).
"""

from __future__ import annotations

import resource

__all__ = ["connections_allowed", "grpc_connections_allowed", "raise_limit"]

#: Kept for the server's own needs: the store, builders and their pipes, loading, the link between processes.
_OWN = 128
_LEAST_CONNECTIONS = 16
#: More are of no use, and some limits are "infinity".
_MOST = 2**20


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
