"""One raw ASGI exchange with the web layer, for what httpx can't do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from tests.web.scripted import LOCAL, Service


class Wire:
    """One raw ASGI exchange, for what httpx can't do: leaving early, odd paths, bodies in pieces."""

    def __init__(self, service: Service, method: str, path: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._app = service.app
        self.scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": list(headers),
            "client": LOCAL,
            "server": ("127.0.0.1", 8000),
            "scheme": "http",
            "root_path": "",
            "http_version": "1.1",
        }
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []

    def put(self, body: bytes = b"", *, more: bool = False) -> None:
        """Let a piece of the body arrive."""
        self.incoming.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def leave(self) -> None:
        """Close the caller's end."""
        self.incoming.put_nowait({"type": "http.disconnect"})

    async def run(self) -> None:
        """Serve the exchange to its end."""

        async def send(message: Any) -> None:
            self.sent.append(message)

        await self._app(self.scope, self.incoming.get, send)

    @property
    def status(self) -> int:
        """The answer's status."""
        status: int = self.sent[0]["status"]
        return status


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    """A body in pieces."""
    for part in parts:
        yield part
