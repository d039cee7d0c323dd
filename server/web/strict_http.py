"""uvicorn's httptools protocol, held to limits: what a connection may send, how slowly, and how it is told.

Rules:

1. A request's head has a bounded size and number of headers, and comes within a time of its first byte, or of the
   connection's start.
2. What can be framed in two ways is refused: the parser refuses two lengths, a length beside chunks, folded lines, bare
   line ends and blanks before colons; here are refused other transfer codings than chunks, chunks in HTTP/1.0, and
   any other number of Host headers than one. A proxy in front may have read such a request in another way.
3. After what can't be read nothing is read. Requests before it get their answers, then it gets its own, and the
   connection is closed, once the caller has had a moment to read.
4. Who asks to speak another protocol is answered in this one. The parser would take such a request's body for the other
   protocol's; so the head is parsed again without the wish.
5. A request that was answered before its body had come may send the rest of it for a while, and nothing else.
6. Answers that are not taken stop the reading, and in the end the connection (``flow``).
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from server.web.connection_end import PeerWatch, close_unread
from server.web.errors import (
    HeadTimeout,
    HeadTooLarge,
    HttpVersionNotSupported,
    MalformedHttp,
    TargetTooLong,
    TransferCodingNotSupported,
    WebError,
)
from server.web.flow import Flow
from server.web.front import Front
from server.web.reply_bytes import reply_bytes
from server.web.status import Reply, error_reply

__all__ = ["MAX_HEADERS", "MAX_HEAD_BYTES", "MAX_TARGET_BYTES", "StrictHttpProtocol"]

#: Bytes of a head, as they come. Precedent: nginx, large_client_header_buffers.
MAX_HEAD_BYTES = 32_768
#: Precedents: Apache's LimitRequestFields and LimitRequestLine.
MAX_HEADERS = 100
MAX_TARGET_BYTES = 8_190

#: Seconds in which the rest of a body must come that nobody waits for any more.
_REST_S = 30.0

_UPGRADE = frozenset({b"upgrade", b"http2-settings"})


class _Refused(Exception):
    """Ends the parser's work from within one of its calls."""


class StrictHttpProtocol(HttpToolsProtocol):
    """One connection. ``front`` is what answers its requests, and knows the settings."""

    def __init__(self, *args: Any, front: Front, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._front = front
        #: True from the connection's start, or a request's first byte, to the end of its headers.
        self._is_expecting = True
        #: True between two requests: whatever comes next begins one.
        self._is_between = True
        #: True: the last answer is given, or known, and what comes is thrown away.
        self._is_deaf = False
        #: True: nothing more can be sent; the caller has a moment to read.
        self._is_lingering = False
        #: Why the head that is being parsed is refused.
        self._refusal: WebError | None = None
        #: What is said when the cold requests are answered, as the last thing.
        self._last_words: Reply | None = None
        #: True: the head that was parsed asks to speak another protocol.
        self._is_upgrade = False
        #: Bytes of the head that came before the present ones, and the number of those.
        self._n_head_bytes = self._n_fed = 0
        #: Since when a head is awaited, by the loop's clock; None: it has begun in the bytes that are being parsed.
        self._head_since_s: float | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._rest_timer: asyncio.TimerHandle | None = None
        #: When the connection was made, by the loop's clock.
        self._made_s = self.loop.time()
        self.caller: str | None = None
        #: None until reading was paused.
        self._peer: PeerWatch | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note who calls, and wait for the first request."""
        super().connection_made(transport)
        settings = self._front.settings
        self.flow = Flow(transport, self.loop, stall_s=settings.write_timeout_s)
        self.caller = self.client[0] if self.client else None
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        for timer in (self._head_timer, self._rest_timer):
            if timer is not None:
                timer.cancel()
        if self._peer is not None:
            self._peer.stop()
        super().connection_lost(exc)

    # Reading.

    def is_clear(self) -> bool:
        """True if no cold request is under way or waits, so that a hot one may follow."""
        # uvicorn's own annotation leaves out that there is none at first.
        cycle: RequestResponseCycle | None = self.cycle
        return not self.pipeline and (cycle is None or cycle.response_complete)

    def feed(self, data: bytes) -> None:
        """Parse what came."""
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        self._n_fed = len(data)
        self._n_head_bytes += self._n_fed
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._feed_without_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            if self.parser is not None:
                fault = "its target is no URL" if isinstance(error, httptools.HttpParserCallbackError) else str(error)
                self._refuse(self._refusal or MalformedHttp(fault, data))
            return
        if self._is_expecting and not self._is_between and not self._is_deaf:
            if self._n_head_bytes > MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge(limit_bytes=MAX_HEAD_BYTES, limit_headers=MAX_HEADERS))
            elif self._head_since_s is None:
                self._await_head()

    def is_upgrade(self) -> bool:
        """Return whether the head that is complete asks to speak another protocol: then it comes once more, without."""
        if not self.parser.should_upgrade():
            return False
        if self.parser.get_method() == b"CONNECT":
            self._refuse_head(MalformedHttp("CONNECT asks for a tunnel, and this is no proxy"))
        self._is_upgrade = True
        return True

    def begin_head(self) -> None:
        """Note that a request begins."""
        self._is_expecting, self._is_between = True, False
        self._is_upgrade = False
        self._n_head_bytes = 0
        self._head_since_s = None

    def end_head(self) -> None:
        """Note that a head is complete, and refuse it if there is too much of it."""
        self._is_expecting = False
        n_headers = len(self.headers)
        if n_headers > MAX_HEADERS or self._n_fed + self._n_head_bytes > MAX_HEAD_BYTES:
            n_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if n_headers > MAX_HEADERS or n_bytes > MAX_HEAD_BYTES:
                self._refuse_head(HeadTooLarge(limit_bytes=MAX_HEAD_BYTES, limit_headers=MAX_HEADERS))
        if len(self.url) > MAX_TARGET_BYTES:
            self._refuse_head(TargetTooLong(limit_bytes=MAX_TARGET_BYTES))

    def check_framing(self) -> None:
        """Refuse a head that others could read in another way."""
        version = self.parser.get_http_version()
        if version not in {"1.0", "1.1"}:
            self._refuse_head(HttpVersionNotSupported(version))
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and version == "1.0":
            self._refuse_head(MalformedHttp("HTTP/1.0 has no Transfer-Encoding"))
        if any(coding.lower() != b"chunked" for coding in codings):
            self._refuse_head(TransferCodingNotSupported(codings[0].decode("latin-1")))
        n_hosts = sum(name == b"host" for name, _ in self.headers)
        if n_hosts > 1 or (n_hosts == 0 and version == "1.1"):
            self._refuse_head(MalformedHttp(f"a request has one Host header, this one has {n_hosts or 'none'}"))
        if not self.url.startswith((b"/", b"http://", b"https://")) and self.url != b"*":
            self._refuse_head(MalformedHttp("the request's target is neither a path nor a URL"))

    def _refuse_head(self, error: WebError) -> None:
        self._refusal = error
        raise _Refused

    def _feed_without_upgrade(self, rest: bytes) -> None:
        lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = (token.strip() for token in value.split(b","))
                value = b", ".join(token for token in tokens if token.lower() not in _UPGRADE)  # noqa: PLW2901
            if name not in _UPGRADE and (value or name != b"connection"):
                lines.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.feed(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def watch_peer(self) -> None:
        """Notice that the caller leaves, as long as nothing is read."""
        if self._peer is None:
            self._peer = PeerWatch(self.loop, self.transport)
        self._peer.begin()

    # Time.

    def _await_head(self) -> None:
        self._head_since_s = self.loop.time()
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._front.settings.head_timeout_s, self._look_for_head)

    def _look_for_head(self) -> None:
        self._head_timer = None
        if not self._is_expecting or self._is_deaf or self._head_since_s is None:
            return
        timeout_s = self._front.settings.head_timeout_s
        left_s = self._head_since_s + timeout_s - self.loop.time()
        if left_s > 1e-3:
            self._head_timer = self.loop.call_later(left_s, self._look_for_head)
        elif self._is_between:
            self.transport.close()  # who has said nothing is told nothing
        else:
            self._refuse(HeadTimeout(timeout_s))

    def await_rest(self) -> None:
        """Wait a while for the rest of a body whose request is answered, if there is one."""
        is_rest = self.cycle.response_complete and self.cycle.more_body
        if is_rest and self._rest_timer is None and not self.transport.is_closing():
            self._rest_timer = self.loop.call_later(_REST_S, self.transport.close)

    def came_whole(self) -> None:
        """Note that a cold request has come whole."""
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None

    # Refusing.

    def _refuse(self, error: WebError) -> None:
        """Read no more, and say why when those before are answered."""
        self._is_deaf = True
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        was_queued = bool(self.pipeline) and self.pipeline[0][0].more_body
        if was_queued:
            self.pipeline.popleft()  # its own body is what can't be read
        elif not self.pipeline and cycle is not None and cycle.response_complete and self._is_in_body():
            self._end_unread()  # a second answer would be taken for the next request's
            return
        elif not self.pipeline and cycle is not None and cycle.more_body and not cycle.response_complete:
            if cycle.response_started:
                self.transport.close()
            else:
                # Whoever reads its body learns that the caller is gone, and counts it.
                cycle.disconnected = True
                cycle.message_event.set()
                self._say_last(error_reply(error))
            return
        is_behind = was_queued or bool(self.pipeline) or (cycle is not None and not cycle.response_complete)
        self.say_in_turn(self._front.predictor.refused(error), is_behind_cold=is_behind)

    def _is_in_body(self) -> bool:
        return not (self._is_expecting or self._is_between or self._refusal)

    def say_in_turn(self, reply: Reply, *, is_behind_cold: bool) -> None:
        """Say the connection's last words when those before it are answered."""
        if is_behind_cold:
            self._last_words = reply
        else:
            self._say_last(reply)

    def say_last_words(self) -> bool:
        """Say what was kept for the end, if it has come. True if so."""
        if self._last_words is None or self.pipeline:
            return False
        self._say_last(self._last_words)
        return True

    def _say_last(self, reply: Reply) -> None:
        if not self.transport.is_closing():
            self.server_state.total_requests += 1
            headers = self.server_state.default_headers
            self.transport.write(reply_bytes(reply, headers, request_id=self._front.ids.of(None), is_last=True))
            self._end_unread()

    def _end_unread(self) -> None:
        self._is_lingering = True
        close_unread(self.loop, self.transport)
