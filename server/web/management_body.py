"""The body of a management request that is no upload."""

from __future__ import annotations

from fastapi import Request

from server.settings import Settings
from server.web.bodies import read_body
from server.web.request_headers import content_length

__all__ = ["read_small_body"]


async def read_small_body(request: Request, settings: Settings) -> bytes:
    """Return the body, within the limits of a prediction's. Errors: BodyTooLarge, BodyTimeout, ClientGone."""
    return await read_body(
        request.receive,
        length_bytes=content_length(request.headers.get("content-length", "").encode() or None),
        limit_bytes=settings.max_body_bytes,
        setting="max_body_bytes",
        timeout_s=settings.default_timeout_ms / 1e3,
    )
