"""Notices that a caller leaves who waits for a prediction outside of the hot lane."""

from __future__ import annotations

import asyncio

from server.web.bodies import Receive
from server.web.status import Reply

__all__ = ["Listener"]

#: Seconds after which a waiting prediction starts to listen for its caller's leaving. Most are answered before, and
#: save the task that listening costs (20 us); who leaves earlier is noticed then.
_LISTEN_AFTER_S = 0.002


class Listener:
    """Resolves ``answered`` with None when the caller leaves. Starts late: see ``_LISTEN_AFTER_S``."""

    __slots__ = ("_answered", "_loop", "_receive", "_task", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, receive: Receive, answered: asyncio.Future[Reply | None]
    ) -> None:
        self._loop = loop
        self._receive = receive
        #: None once nobody listens: a task that was cancelled is held by its traceback, and must not hold an answer.
        self._answered: asyncio.Future[Reply | None] | None = answered
        self._task: asyncio.Task[None] | None = None
        self._timer = loop.call_later(_LISTEN_AFTER_S, self._start)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._listen())

    async def _listen(self) -> None:
        # The body is complete: the next message can only be that the caller left.
        message = await self._receive()
        answered = self._answered
        if message["type"] == "http.disconnect" and answered is not None and not answered.done():
            answered.set_result(None)

    def stop(self) -> None:
        """Stop listening: the answer is there, or nobody waits for it."""
        self._timer.cancel()
        self._answered = None
        if self._task is not None:
            self._task.cancel()
