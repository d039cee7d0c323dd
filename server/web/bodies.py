"""Reading request bodies under a limit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from server.web.errors import BodyTooLarge, ClientGone

__all__ = ["Message", "Receive", "Send", "body_chunks", "read_body"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def read_body(receive: Receive, *, length_bytes: int | None, limit_bytes: int, setting: str) -> bytes:
    """Read a whole body. Errors: BodyTooLarge, before reading where its length was announced; ClientGone."""
    if length_bytes is not None and length_bytes > limit_bytes:
        raise BodyTooLarge(f"the body of {length_bytes} bytes", limit_bytes=limit_bytes, setting=setting)
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > limit_bytes:
            raise BodyTooLarge("the body", limit_bytes=limit_bytes, setting=setting)
        return body
    chunks: list[bytes] = []
    n_bytes = 0
    async for chunk in body_chunks(receive, first=message):
        n_bytes += len(chunk)
        if n_bytes > limit_bytes:
            raise BodyTooLarge("the body", limit_bytes=limit_bytes, setting=setting)
        chunks.append(chunk)
    return b"".join(chunks)


async def body_chunks(receive: Receive, *, first: Message | None = None) -> AsyncIterator[bytes]:
    """Yield a body's chunks as they come. Errors: ClientGone."""
    while True:
        message = first or await receive()
        first = None
        if message["type"] == "http.disconnect":
            raise ClientGone("the caller closed the connection while it sent the body")
        chunk: bytes = message.get("body", b"")
        if chunk:
            yield chunk
        if not message.get("more_body", False):
            return
