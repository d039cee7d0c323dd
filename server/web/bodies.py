"""Reading request bodies under a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from server.web.errors import BodiesWaiting, BodyStalled, BodyTimeout, BodyTooLarge, ClientGone

__all__ = ["BodyBudget", "Message", "Receive", "Send", "body_chunks", "read_body"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class BodyBudget:
    """Bytes of bodies that are not complete: what callers who send slowly make the server hold."""

    __slots__ = ("_n_bytes", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        #: Most bytes that are held.
        self.max_bytes = max_bytes
        self._n_bytes = 0

    def take(self, n_bytes: int) -> None:
        """Hold more bytes. Errors: BodiesWaiting, if that is too many; they are not held then."""
        if self._n_bytes + n_bytes > self.max_bytes:
            raise BodiesWaiting(limit_bytes=self.max_bytes)
        self._n_bytes += n_bytes

    def give_back(self, n_bytes: int) -> None:
        """Let go of bytes: their body is complete, or given up."""
        self._n_bytes -= n_bytes


async def read_body(
    receive: Receive,
    *,
    length_bytes: int | None,
    limit_bytes: int,
    setting: str,
    budget: BodyBudget | None = None,
    timeout_s: float | None = None,
) -> bytes:
    """Read a whole body, within ``timeout_s`` and ``budget`` where there are any.

    Errors: BodyTooLarge, before reading where its length was announced; ClientGone; BodyTimeout; BodiesWaiting.
    """
    if length_bytes is not None and length_bytes > limit_bytes:
        raise BodyTooLarge(f"the body of {length_bytes} bytes", limit_bytes=limit_bytes, setting=setting)
    chunks: list[bytes] = []
    n_bytes = n_held = 0
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in body_chunks(receive):
                n_bytes += len(chunk)
                if n_bytes > limit_bytes:
                    raise BodyTooLarge("the body", limit_bytes=limit_bytes, setting=setting)
                if budget is not None:
                    budget.take(len(chunk))
                    n_held += len(chunk)
                chunks.append(chunk)
    except TimeoutError:
        raise BodyTimeout(timeout_s or 0.0) from None
    finally:
        if budget is not None:
            budget.give_back(n_held)
    return b"".join(chunks)


async def body_chunks(receive: Receive, *, stall_s: float | None = None) -> AsyncIterator[bytes]:
    """Yield a body's chunks as they come, if each comes within ``stall_s``. Errors: ClientGone; BodyStalled."""
    while True:
        try:
            async with asyncio.timeout(stall_s):
                message = await receive()
        except TimeoutError:
            raise BodyStalled(stall_s or 0.0) from None
        if message["type"] == "http.disconnect":
            raise ClientGone("the caller closed the connection while it sent the body")
        chunk: bytes = message.get("body", b"")
        if chunk:
            yield chunk
        if not message.get("more_body", False):
            return
