"""The hot lane: predictions answered inside the HTTP protocol, without ASGI.

uvicorn takes a protocol class. This one looks at each request when its headers are complete: a prediction as every
client sends it (POST to a ``:predict`` or ``/infer`` path, a Content-Length within the limit) is taken over. Its body
goes to the ``Predictor``, its reply is written in one call. Everything else, and every prediction with something
unusual about it (chunked, compressed, ``Expect``, HTTP/1.0, a gate to pass), goes the way it would go without this
file.

Rules:

1. Replies leave in the order of their requests. A hot request waits in ``_waiting`` until all before it are answered.
2. A cold request that follows hot ones waits in uvicorn's own pipeline until they are answered; while a cold one is
   under way or waits, all that follow are cold too. So there is one order, and uvicorn keeps the second half of it.
3. A connection that has sent more requests than it has taken answers is not read from.
4. When the connection goes, what it waits for is taken back. A caller who closes its sending half is gone too: a
   process that died looks the same.
5. A body that is not complete when the request's deadline passes is given up, and the connection with it. One that came
   with its headers, as most do, costs no timer.
6. When the server stops, a connection whose first request has not come yet, or has come in part, is still answered: its
   caller has been told by the kernel that the server has it. So is one that was just in use, for its caller may have
   sent the next request already. Whatever is answered while the server stops is its connection's last answer.
7. A plain request whose head was seen before is not parsed again, and is answered with others of its tick. Its body may
   come with its head or after it; the parser sees neither. A long one is received where it is read (``body_fill``).
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from server.protocol import TFS_JSON, Body, Headers
from server.web.access_log import log_access
from server.web.body_wait import BodyWait
from server.web.comeback import Comeback
from server.web.connection_end import IdleWait, close_unread
from server.web.errors import WebError
from server.web.front import Front
from server.web.hot_head import hot_request
from server.web.hot_request import Busy, HotRequest
from server.web.known_heads import END_OF_HEAD
from server.web.late_body import LateBody
from server.web.paths import VerbPath
from server.web.reply_bytes import write_reply
from server.web.status import Reply, stopped_reply
from server.web.strict_http import StrictHttpProtocol

__all__ = ["HotLaneProtocol"]

#: Requests of one connection that may wait for their answers. Few clients pipeline at all.
_MAX_WAITING = 32

#: Seconds that the loop's clock may be behind: uvloop's counts milliseconds.
_TICK_S = 1e-3
#: Seconds that a request may still take to arrive on an open connection once the server stops.
_LAST_CALL_S = 1.0


#: Where a request goes that can't be read.
_NOWHERE = VerbPath("", None, None, "")


class HotLaneProtocol(StrictHttpProtocol):
    """uvicorn's httptools protocol with the hot lane. ``front`` is what answers beside it, and shares its parts."""

    def __init__(self, *args: Any, front: Front, **kwargs: Any) -> None:
        super().__init__(*args, front=front, **kwargs)
        #: The hot request whose body is being received, the last of ``_waiting``.
        self._receiving: HotRequest | None = None
        #: Hot requests without a reply that has left, oldest first.
        self._waiting: deque[HotRequest] = deque()
        self.comeback = Comeback()
        self._is_shutting_down = False
        self._body_wait = BodyWait(self.loop, front.body_budget, self._give_up_body)
        self._idle = IdleWait(
            self.loop,
            patience_s=self.timeout_keep_alive,
            is_used=lambda: self.is_answering,
            close=self.timeout_keep_alive_handler,
        )
        #: The plain request that the last bytes began, and how many requests began in them.
        self._plain: HotRequest | None = None
        self._n_begun = 0
        #: The body of ``_receiving``, where its head was known and went before it.
        self._late_body = LateBody(self)

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Begin a request. Its ASGI scope is made only if it turns out to be cold."""
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self.begin_head()
        self._plain = None
        self._n_begun += 1

    def on_headers_complete(self) -> None:
        """Decide which way the request goes."""
        if self.is_upgrade():
            return
        self.end_head()
        hot = self._hot_request() if self.is_clear() else None
        if hot is None:
            self._go_cold()
            return
        self._receiving = hot
        self._waiting.append(hot)
        if len(self._waiting) >= _MAX_WAITING:
            self.flow.pause_reading()
            self.watch_peer()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        hot = self._receiving
        if hot is None:
            super().on_body(body)
        elif hot.reply is None:
            hot.body.append(body)
            hot.n_received += len(body)

    def on_message_complete(self) -> None:
        """Start the prediction."""
        if self._is_upgrade:
            return
        self._is_between = True
        hot = self._receiving
        if hot is None:
            self.came_whole()
            super().on_message_complete()
            return
        self._receiving = None
        self._body_wait.stop(hot)
        hot.is_whole = True
        if hot.reply is not None:
            return  # given up
        parts = hot.body
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        hot.body = []
        hot.call = self._front.predictor.start(
            hot.path,
            body,
            timeout_s=hot.timeout_s,
            explain=hot.explain,
            request_id=hot.request_id,
            on_reply=hot.replied,
            traceparent=hot.traceparent,
            received_s=hot.received_s,
            caller=hot.caller,
            wire=hot.wire,
            rate=hot.rate,
        )

    # What the transport and the server call.

    def data_received(self, data: bytes) -> None:
        """Parse what came, and see to it that a body that is not complete will be, or be given up."""
        if self._is_deaf:
            return
        if self._late_body.n_missing:
            data = self._late_body.take(data)
            if not data:
                return
        was_between = self._is_between
        if was_between and not self._waiting and self._is_known(data):
            return
        self._n_begun = 0
        self.feed(data)
        hot = self._receiving
        if hot is not None and hot.reply is None:
            self.await_more(hot)
        if was_between and self._plain is not None and self._n_begun == 1:
            self._front.known_heads.remember(data, self._plain)

    def await_more(self, hot: HotRequest) -> None:
        """Wait for the rest of a body, for as long as it may take."""
        patience_s = self._front.body_timeout_s if hot.timeout_s is None else hot.timeout_s
        self._body_wait.more(hot, patience_s=patience_s)

    def _is_known(self, data: bytes) -> bool:
        """Take a request whose head was seen before, if nothing else came with it or is under way."""
        front = self._front
        end = data.find(END_OF_HEAD) + len(END_OF_HEAD)
        known = front.known_heads.find(data[:end])
        if known is None or not self.is_clear() or not front.gathers(known.path):
            return False
        n_missing = known.n_body - (len(data) - end)
        if n_missing < 0 or (known.rate is not None and known.rate.take()):
            return False
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._is_expecting = False
        hot = HotRequest(self, known.path, None, known.timeout_s, explain=False, wire=known.wire, caller=self.caller)
        hot.rate = known.rate
        hot.keep_alive = known.keep_alive
        self._waiting.append(hot)
        if not n_missing:
            hot.body.append(data[end:])
            hot.is_whole = True
            front.gathering.add(hot)
            return True
        hot.received_s = self._received_s()
        hot.n_received = len(data) - end
        self._receiving = hot
        self._late_body.begin(hot, data[end:], known)
        self.await_more(hot)
        return True

    def known_came_whole(self, hot: HotRequest) -> None:
        """Start a request whose head was known and whose body came after it."""
        self._receiving = None
        self._body_wait.stop(hot)
        hot.is_whole = True
        self._front.gathering.add(hot)

    def _received_s(self) -> float:
        """When a request came that is read now: on a busy loop others came first, and it has waited since."""
        return min(time.monotonic(), self.loop.time() + _TICK_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take back what the caller waited for."""
        waiting, self._waiting = self._waiting, deque()
        if self._receiving is not None:
            self._body_wait.stop(self._receiving)
            self._receiving = None
        for hot in waiting:
            if hot.reply is None:
                hot.abandon()
        self.comeback.gone()
        self._idle.stop()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close once what is under way is answered."""
        if self._waiting:
            self._is_shutting_down = True
            if not self.is_clear():
                super().shutdown()
        elif self.is_clear() and (self._is_expecting or self.loop.time() - self._idle.replied_s < _LAST_CALL_S):
            self._is_shutting_down = True
            self.loop.call_later(_LAST_CALL_S, self._close_unless_answering)
        else:
            super().shutdown()

    def _close_unless_answering(self) -> None:
        if not self.is_answering:
            self.transport.close()

    @property
    def is_answering(self) -> bool:
        """True while a caller waits for an answer that it has asked for in full, or nearly."""
        return bool(self._waiting) or not self.is_clear()

    @property
    def idle_since_s(self) -> float | None:
        """Since when nobody uses it, by the loop's clock; None: it is in use."""
        return None if self.is_answering or not self._is_between else max(self._made_s, self._idle.replied_s)

    def give_up(self) -> None:
        """Tell who waits that there will be no answer any more."""
        self._is_shutting_down = True
        for hot in self._waiting:
            if hot.reply is None:
                hot.abandon()
                hot.reply = stopped_reply()
        if self._waiting:
            self.flush()

    def _give_up_body(self, hot: HotRequest, error: WebError) -> None:
        """Answer a request whose body is not complete, and close: what follows is the rest of that body."""
        self._late_body.give_up()
        self._body_wait.stop(hot)
        hot.body = []
        hot.keep_alive = False
        hot.replied(self._front.predictor.refused(error))

    # Answering.

    def flush(self) -> None:
        """Write the replies whose turn it is."""
        waiting = self._waiting
        while waiting and waiting[0].reply is not None:
            hot = waiting.popleft()
            if self.transport.is_closing() or self._is_lingering:
                return
            self._write(hot, hot.reply)  # type: ignore[arg-type]
        if waiting:
            return
        if self._is_shutting_down:
            self.transport.close()
        elif self.pipeline:
            cycle, app = self.pipeline.pop()
            self.flow.resume_reading()
            self._start_asgi_task(cycle, app)
        else:
            self.flow.resume_reading()
            self._idle.begin()

    def answered(self, hot: HotRequest, body: Body, headers: Headers) -> None:
        """Write a prediction: at once where it is the only one that is waited for, else when it is its turn."""
        waiting = self._waiting
        if (
            len(waiting) != 1
            or waiting[0] is not hot
            or not hot.keep_alive
            or self._is_shutting_down
            or self._front.is_draining
            or self.pipeline
            or self.transport.is_closing()
        ):
            hot.replied(Reply(200, body, headers))
            return
        waiting.popleft()
        state = self.server_state
        front, own_id = self._front, hot.own_request_id
        request_id = front.ids.new() if own_id is None else own_id.encode("ascii")
        self.transport.write(front.good_heads.answer(state.default_headers, headers, request_id, body))
        state.total_requests += 1
        self._idle.begin()

    def new_request_id(self) -> str:
        """Make an id for a request that brought none."""
        return self._front.ids.of(None)

    def on_response_complete(self) -> None:
        """Note that a cold request is answered: who sends such ones uses the connection too."""
        self._idle.replied_s = self.loop.time()
        is_last = not self.pipeline  # else the next one begins now, and is answered first
        super().on_response_complete()
        if not (is_last and self.say_last_words()):
            self.await_rest()

    def say_in_turn(self, reply: Reply, *, is_behind_cold: bool) -> None:
        """Say the connection's last words when those before it are answered."""
        if not self._waiting or self.pipeline:
            super().say_in_turn(reply, is_behind_cold=is_behind_cold)
            return
        last = HotRequest(self, _NOWHERE, None, None, explain=False, wire=TFS_JSON)
        last.keep_alive = False
        self._waiting.append(last)
        last.replied(reply)

    def _write(self, hot: HotRequest, reply: Reply) -> None:
        is_leaving = self._is_shutting_down or self._front.is_draining
        is_last = not hot.keep_alive or (is_leaving and not self._waiting)
        write_reply(
            self.transport, reply, self.server_state.default_headers, request_id=hot.request_id, is_last=is_last
        )
        self.server_state.total_requests += 1
        if hot.started_s:
            duration_ms = (time.perf_counter() - hot.started_s) * 1e3
            log_access("POST", hot.path.text, reply.status, duration_ms, hot.request_id)
        if is_last and not hot.is_whole:
            self._is_deaf = self._is_lingering = True
            close_unread(self.loop, self.transport)
        elif is_last:
            self.transport.close()

    # Deciding.

    def _hot_request(self) -> HotRequest | None:
        """Return the request if it may be hot."""
        parser = self.parser
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return None
        hot = hot_request(
            self,
            self._front,
            url=self.url,
            headers=self.headers,
            keep_alive=parser.should_keep_alive(),
            received_s=self._received_s(),
            peer=self.client,
        )
        if hot is not None and hot.is_plain:
            self._plain = hot
        return hot

    def _go_cold(self) -> None:
        self.check_framing()
        headers, url, expects = self.headers, self.url, self.expect_100_continue
        super().on_message_begin()
        self.headers.extend(headers)
        self.url, self.expect_100_continue = url, expects
        if self._waiting and self.is_clear():
            self.cycle = Busy()  # type: ignore[assignment]
        super().on_headers_complete()
        is_leaving = self._is_shutting_down or self._front.is_draining
        if is_leaving and isinstance(self.cycle, RequestResponseCycle):
            self.cycle.keep_alive = False
        if self.flow.read_paused:
            self.watch_peer()
