"""More callers than connections: who nobody waits for makes room, and who finds none is told so.

When all connections are taken, some of those are closed that nobody uses, first of the addresses that hold the most of
them, oldest first. If all are in use, a newcomer gets 503; but one who asks whether the server lives, or is ready, gets
an answer, as whoever restarts it would make things worse.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Protocol

from server.web.connection_end import close_unread
from server.web.errors import NoConnectionLeft
from server.web.front import Front
from server.web.hot_lane import HotLaneProtocol
from server.web.reply_bytes import reply_bytes

__all__ = ["with_room"]

#: Of the connections, this part is closed at once to make room, as finding them takes a look at all.
_SHARE = 16
#: Seconds between two looks where nobody could be closed.
_LOOK_S = 0.1
#: Newcomers without room that are open at the same time; the oldest has to go for one more.
_MAX_WAITING = 16
#: Seconds in which they have to say what they want.
_PATIENCE_S = 0.5


class _ServerState(Protocol):
    connections: Collection[Any]
    default_headers: list[tuple[bytes, bytes]]


def with_room(front: Front, *, most: int) -> Callable[..., asyncio.Protocol]:
    """Return what makes a connection's protocol: the hot lane's for as many as ``most``."""
    make = partial(HotLaneProtocol, front=front)
    crowd = _Crowd(front, most)

    def protocol(*, server_state: _ServerState, **options: Any) -> asyncio.Protocol:
        if len(server_state.connections) < most or crowd.makes_room(server_state.connections):
            return make(server_state=server_state, **options)
        return _NoRoom(crowd, server_state)

    return protocol


class _Crowd:
    """Who was sent away, and who is being."""

    def __init__(self, front: Front, most: int) -> None:
        self.front = front
        self._most = most
        #: Connections that were closed and are not gone.
        self._leaving: set[Any] = set()
        self._next_look_s = 0.0
        #: Newcomers without room, oldest first.
        self.waiting: OrderedDict[_NoRoom, None] = OrderedDict()

    def makes_room(self, connections: Collection[Any]) -> bool:
        """Close some connections that nobody uses, if there are any. True if there is room then."""
        self._leaving.intersection_update(connections)
        if len(connections) - len(self._leaving) < self._most:
            return True
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_look_s:
            return False
        idle = [one for one in connections if one.idle_since_s is not None and one not in self._leaving]
        if not idle:
            self._next_look_s = now_s + _LOOK_S
            return False
        held = Counter(one.caller for one in idle)
        idle.sort(key=lambda one: (-held[one.caller], one.idle_since_s))
        for one in idle[: max(1, self._most // _SHARE)]:
            self._leaving.add(one)
            one.transport.close()
        return True


class _NoRoom(asyncio.Protocol):
    """Says that there is no room, once the caller has said what he wants, or after a moment; a probe is answered."""

    def __init__(self, crowd: _Crowd, server_state: _ServerState) -> None:
        self._crowd = crowd
        self._server_state = server_state
        self._timer: asyncio.TimerHandle | None = None
        self._is_told = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait a moment for what is wanted."""
        self._transport = transport
        waiting = self._crowd.waiting
        if len(waiting) >= _MAX_WAITING:
            next(iter(waiting)).push_out()
        waiting[self] = None
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self.tell, b"")

    def data_received(self, data: bytes) -> None:
        """Answer."""
        self.tell(data)

    def tell(self, data: bytes) -> None:
        """Answer a request that begins with ``data``, or the one that may still come, and close."""
        if self._is_told:
            return
        self._is_told = True
        front = self._crowd.front
        reply = front.probe(data) or front.predictor.refused(NoConnectionLeft())
        headers = self._server_state.default_headers
        self._transport.write(reply_bytes(reply, headers, request_id=front.ids.of(None), is_last=True))
        close_unread(asyncio.get_running_loop(), self._transport)

    def push_out(self) -> None:
        """Close at once."""
        self.tell(b"")
        self._crowd.waiting.pop(self, None)
        self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget it."""
        self._is_told = True
        self._crowd.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
