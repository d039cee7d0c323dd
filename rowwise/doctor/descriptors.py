"""How many file descriptors the server may have: each connection takes one."""

from __future__ import annotations

import resource

from rowwise.doctor.finding import Finding, advice, fine, wrong
from server.descriptors import connections_allowed
from server.settings import Settings

__all__ = ["descriptors_finding"]

#: Below it the server keeps most for itself.
_LEAST = 1_024
_ENOUGH = 4_096
_MOST = 2**20


def descriptors_finding(settings: Settings, *, hard: int) -> Finding:
    """Return whether the hard limit, which the server raises its own to, is enough."""
    limit = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    allowed = connections_allowed(limit)
    to_do = "raise it: ulimit -Hn 65536, LimitNOFILE=65536 in the unit, or docker --ulimit nofile=65536"
    if settings.max_connections is not None and settings.max_connections > allowed:
        return wrong(
            "descriptors",
            f"max_connections is {settings.max_connections:,}, and {limit:,} descriptors are enough for {allowed:,}",
            why="callers past that are turned away with 503",
            to_do=f"{to_do}; or lower --max-connections",
        )
    what = f"{limit:,} file descriptors: {allowed:,} connections"
    if limit < _LEAST:
        why = "each connection takes one, and loading, building and storing take some: callers are turned away with 503"
        return wrong("descriptors", what, why=why, to_do=to_do)
    if limit < _ENOUGH:
        return advice("descriptors", what, why="callers past that are turned away with 503", to_do=to_do)
    return fine("descriptors", what)
