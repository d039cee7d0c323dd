"""Answers without an end of their own, such as a stream of events: they end when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from server.web.bodies import Message, Receive, Send

__all__ = ["LIVE_PATH", "EndlessAnswers"]

#: The path whose answer is one: the console's events.
LIVE_PATH = "/v1/console/live"

_App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


class EndlessAnswers:
    """Lets an application answer such requests, here or in another process, until ``end`` is called.

    Without it a server that stops would wait for them through its whole grace period.
    """

    def __init__(self) -> None:
        self._answering: set[asyncio.Future[None]] = set()
        self._has_ended = False

    def end(self) -> None:
        """End all of them in good order, and those that come later at once."""
        self._has_ended = True
        for answering in self._answering:
            answering.cancel()

    async def answer(self, app: _App, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request."""
        has_begun = is_complete = False

        async def send_on(message: Message) -> None:
            nonlocal has_begun, is_complete
            has_begun = True
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        answering = asyncio.ensure_future(app(scope, receive, send_on))
        self._answering.add(answering)
        if self._has_ended:
            answering.cancel()
        try:
            await asyncio.wait({answering})
        finally:
            self._answering.discard(answering)
            if not answering.done():
                answering.cancel()
        if not answering.cancelled():
            answering.result()
            return
        if not has_begun:
            await send({"type": "http.response.start", "status": 204, "headers": []})
        if not is_complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
