"""Waiting for the rest of a body: for so long, and for so many bytes of all bodies together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from server.web.bodies import BodyBudget
from server.web.errors import BodiesWaiting, BodyTimeout, WebError
from server.web.hot_request import HotRequest

__all__ = ["BodyWait"]


class BodyWait:
    """The one body of a connection that is being received. ``give_up`` is called with why it is not waited for."""

    __slots__ = ("_budget", "_give_up", "_loop", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, budget: BodyBudget, give_up: Callable[[HotRequest, WebError], None]
    ) -> None:
        self._loop = loop
        self._budget = budget
        self._give_up = give_up
        #: Runs while a body is awaited.
        self._timer: asyncio.TimerHandle | None = None

    def more(self, hot: HotRequest, *, patience_s: float) -> None:
        """Note that a part has come and more is to come, for at most ``patience_s`` seconds from the first part on."""
        if self._timer is None:
            self._timer = self._loop.call_later(patience_s, self._give_up, hot, BodyTimeout(patience_s))
        n_bytes = hot.n_received - hot.n_held
        try:
            self._budget.take(n_bytes)
        except BodiesWaiting as error:
            self._give_up(hot, error)
        else:
            hot.n_held += n_bytes

    def stop(self, hot: HotRequest) -> None:
        """Wait no more. Harmless where nobody waits."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._budget.give_back(hot.n_held)
        hot.n_held = 0
