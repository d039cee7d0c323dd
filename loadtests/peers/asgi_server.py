"""The digits model as someone would serve it by hand who knows asyncio: raw ASGI, and whatever waits is one batch.

python -m loadtests.peers.asgi_server PORT
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import numpy as np
import uvicorn

from loadtests.peers.by_hand import answer_body, batched, image_of

__all__ = ["Batcher", "main"]

_SIZES = (1, 2, 4, 8, 16, 32, 64)
_HEADERS = [(b"content-type", b"application/json")]


class Batcher:
    """An ASGI application. Requests wait for the end of the tick, and run together on its thread."""

    def __init__(self) -> None:
        self._run = batched(_SIZES)
        self._waiting: list[tuple[list[float], asyncio.Future[np.ndarray]]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if scope["method"] == "GET":
            await self._reply(send, b"ready")
            return
        answer: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append((image_of(body), answer))
        await self._reply(send, answer_body(await answer))

    @staticmethod
    async def _reply(send: Any, body: bytes) -> None:
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, length]})
        await send({"type": "http.response.body", "body": body})

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), _SIZES[-1]):
            part = waiting[first : first + _SIZES[-1]]
            for (_, answer), row in zip(part, self._run([image for image, _ in part]), strict=True):
                answer.set_result(row)


def main() -> None:
    """Serve until told to stop."""
    uvicorn.run(
        Batcher(),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        log_level="warning",
        access_log=False,
        lifespan="off",
    )


if __name__ == "__main__":
    main()
