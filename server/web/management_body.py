"""The body of a management request that is no upload."""

from __future__ import annotations

from fastapi import Request

from server.settings import Settings
from server.web.bodies import read_body
from server.web.request_headers import content_length

__all__ = ["announced_length", "read_small_body"]


def announced_length(request: Request) -> int | None:
    """Return the bytes that a body is said to have; None: that is not said. Errors: BadHeader."""
    length = request.headers.get("content-length")
    return content_length(None if length is None else length.encode("latin-1"))


async def read_small_body(request: Request, settings: Settings) -> bytes:
    """Return the body, within the limits of a prediction's. Errors: BodyTooLarge, BodyTimeout, ClientGone."""
    return await read_body(
        request.receive,
        length_bytes=announced_length(request),
        limit_bytes=settings.max_body_bytes,
        setting="max_body_bytes",
        timeout_s=settings.default_timeout_ms / 1e3,
    )
