"""The ends of connections: idle ones, callers who leave unread, answers that are there before the last byte came."""

from __future__ import annotations

import asyncio
import math
import select
from collections.abc import Callable

__all__ = ["IdleWait", "PeerWatch", "close_unread"]

#: Seconds between two looks at a connection that is not read from.
_EACH_S = 0.05
#: Seconds for which what a caller still sends is read and thrown away after the last answer.
_LINGER_S = 1.0


class PeerWatch:
    """Notices that the caller has left while its connection is not read from, which is when reading would tell.

    Reading stops where a caller sends ahead of its answers. The kernel knows all the same: it is asked now and then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look now and then, as long as reading is paused."""
        if self._timer is None:
            self._timer = self._loop.call_later(_EACH_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._transport.is_reading() or self._transport.is_closing():
            return
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        if poll.poll(0):
            self._transport.abort()
        else:
            self.begin()


class IdleWait:
    """Ends a connection that nobody uses. One timer for a connection, not one for each reply.

    ``is_used`` tells that it is used now, ``close`` ends it after ``patience_s`` without a reply.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        patience_s: float,
        is_used: Callable[[], bool],
        close: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._patience_s = patience_s
        self._is_used = is_used
        self._close = close
        self._timer: asyncio.TimerHandle | None = None
        #: When the last reply left, by the loop's clock.
        self.replied_s = -math.inf

    def begin(self) -> None:
        """Note that a reply left."""
        self.replied_s = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._patience_s, self._look)

    def stop(self) -> None:
        """Look no more: the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._is_used():
            return  # whoever answers last begins again
        left_s = self.replied_s + self._patience_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._close()


def close_unread(loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
    """Close a connection on which the rest of a request may still come, so that its answer is not lost.

    A socket that is closed with bytes unread resets the connection, and the caller may never see what was written. So
    the sending half is closed first; whoever owns the transport has to throw away what is received.
    Source: RFC 9112, section 9.6.
    """
    if not transport.can_write_eof():
        transport.close()
        return
    transport.write_eof()
    loop.call_later(_LINGER_S, transport.close)
