"""One line for each request, in every protocol."""

from __future__ import annotations

import logging

__all__ = ["log_access"]

_log = logging.getLogger("rowwise.access")


def log_access(method: str, path: str, status: int | str, duration_ms: float, request_id: str) -> None:
    """Say how a request ended: by its path, without what was asked in it."""
    fields = {
        "method": method,
        "path": path,
        "status": status,
        "duration_ms": round(duration_ms, 3),
        "request_id": request_id,
    }
    # %r: a path may hold line breaks.
    _log.info("%s %r %s %.3f ms id=%s", method, path, status, duration_ms, request_id, extra=fields)
