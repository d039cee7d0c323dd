"""The outermost ASGI callable: predictions are answered here, everything else by the application behind it.

A prediction passes no router, no middleware and no model class: its path is parsed once and remembered, its body
goes to the ``Predictor``, its reply is sent in two messages. Every answer, of either kind, carries a request id.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from server.errors import RowwiseError
from server.protocol import TFS_JSON, WireFormat, oip_format
from server.rights import Rate
from server.settings import Settings
from server.store.errors import InvalidName
from server.web.access_log import log_access
from server.web.auth import Gate
from server.web.bodies import BodyBudget, Message, Receive, Send, read_body
from server.web.content_encoding import inflated
from server.web.endless import LIVE_PATH, EndlessAnswers
from server.web.errors import BodiesWaiting, BodyTimeout, ClientGone, MethodNotAllowed, PathNotFound
from server.web.gathering import Gathering
from server.web.interfaces import RequestMetrics
from server.web.known_heads import KnownHeads
from server.web.listener import Listener
from server.web.paths import VerbPath, canonical_path, parse_verb_path
from server.web.predict import Predictor
from server.web.reply_bytes import GoodHeads
from server.web.request_headers import PredictHeaders, RequestIds
from server.web.status import CLIENT_GONE, Reply, error_reply, options_reply, stopped_reply

__all__ = [
    "GRANT",
    "IS_FORWARDED",
    "IS_PREDICTION",
    "REQUEST_ID",
    "App",
    "Front",
    "PreparedApp",
    "Probes",
    "Scope",
    "send_reply",
]

Scope = dict[str, Any]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Probes(Protocol):
    """What probes ask."""

    def live(self) -> Reply | None:
        """Say that the process is alive."""

    def ready(self) -> Reply | None:
        """Say whether it can answer."""


class PreparedApp(Protocol):
    """An application that can be made ahead of its first request."""

    async def prepare(self) -> None:
        """Make it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""


#: Keys in the scope that the application behind sees: the request's id, whether it asks for a prediction, once it is
#: known what its caller may do, and, for the front, whether another process took it in, which has logged it.
REQUEST_ID = "rowwise.request_id"
IS_PREDICTION = "rowwise.is_prediction"
GRANT = "rowwise.grant"
IS_FORWARDED = "rowwise.is_forwarded"

_LOG = logging.getLogger("rowwise.web")

#: Paths remembered. Past it, all are forgotten: strangers can make up paths, callers use few.
_MAX_PATHS = 4_096

#: All that some path takes.
_METHODS = ("DELETE", "GET", "POST", "PUT")

#: Verbs of a path that the application behind answers.
_MANAGEMENT_VERBS = frozenset({"activate", "rollback", "shadow"})


class Front:
    """Answers predictions; hands on everything else to ``app``."""

    def __init__(
        self,
        app: PreparedApp,
        predictor: Predictor,
        health: Probes,
        settings: Settings,
        metrics: RequestMetrics,
        gate: Gate,
        *,
        is_here: Callable[[VerbPath], bool] | None = None,
    ) -> None:
        self._app = app
        #: Probes that are answered here, before the application behind is there; it answers where they return None.
        self._probes = {"/v2/health/live": health.live, "/v2/health/ready": health.ready}
        #: Whether a prediction is to be answered here; the application behind answers the others. None: all are.
        self._is_here = is_here
        self.predictor = predictor
        self._metrics = metrics
        #: Who may do what.
        self.gate = gate
        gate.on_change.append(self._forget)
        #: Those in force.
        self.settings = settings
        self.max_body_bytes = settings.max_body_bytes
        self.body_budget = BodyBudget(settings.max_receiving_bytes)
        #: Seconds in which the body of a request that names no deadline must come.
        self.body_timeout_s = settings.default_timeout_ms / 1e3
        self.has_access_log = settings.access_log
        #: True once the server stops: every answer is the last one of its connection.
        self.is_draining = False
        self._endless = EndlessAnswers()
        self.ids = RequestIds()
        #: Verb paths by their text; None: not one of ours.
        self._paths: dict[str, VerbPath | None] = {}
        #: The same by the request line's bytes, for the hot lane.
        self._hot_paths: dict[bytes, VerbPath | None] = {}
        #: For the hot lane: plain predictions of one tick, and what they look like.
        self.gathering = Gathering(predictor)
        self.known_heads = KnownHeads()
        #: Another one each time when what was decided by settings or rights may have changed.
        self.n_changes = 0
        self.good_heads = GoodHeads()

    def change(self, settings: Settings) -> None:
        """Go by these settings from now on, as far as they can change while the server runs."""
        self.settings = settings
        self.max_body_bytes = settings.max_body_bytes
        self.body_budget.max_bytes = settings.max_receiving_bytes
        self.body_timeout_s = settings.default_timeout_ms / 1e3
        self.has_access_log = settings.access_log
        self.predictor.max_instances = settings.max_instances
        self._forget()
        self.gate.change(settings)

    def _forget(self) -> None:
        """Remember nothing of what was decided by settings or rights that may have changed."""
        self.n_changes += 1
        self.known_heads.forget()
        self._hot_paths.clear()

    def begin_drain(self) -> None:
        """Let every answer be the last one of its connection, and what has no end of its own end now."""
        self.is_draining = True
        self._endless.end()

    async def prepare(self) -> None:
        """Make the application behind, ahead of need."""
        await self._app.prepare()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = time.perf_counter()
        headers = PredictHeaders(scope["headers"])
        request_id = self.ids.of(headers.request_id)
        path: str = scope["path"]
        try:
            verb_path = self._paths[path]
        except KeyError:
            verb_path = self._remember(path)
        method = scope["method"]
        reply = self._probes[path]() if path in self._probes and method in {"GET", "HEAD"} else None
        if method == "OPTIONS" and (path == "*" or verb_path is not None):
            reply = options_reply(_METHODS if verb_path is None else ("POST",))
        if reply is not None:
            await send_reply(send, reply, request_id)
            status = reply.status
        elif verb_path is None or not (self._is_here is None or self._is_here(verb_path)):
            # What answers GET answers HEAD: the server leaves out the body.
            scope = {**scope, IS_PREDICTION: verb_path is not None, "method": "GET" if method == "HEAD" else method}
            status = await self._pass_on(scope, receive, send, request_id)
        else:
            status = await self._predict(verb_path, headers, request_id, scope, receive, send)
        if self.has_access_log and IS_FORWARDED not in scope:
            duration_ms = (time.perf_counter() - started_s) * 1e3
            log_access(scope["method"], path, status, duration_ms, request_id)

    def probe(self, data: bytes) -> Reply | None:
        """Return the answer to a probe by the first bytes of its request; None: it is something else."""
        method, _, rest = data.partition(b" ")
        path = rest.partition(b" ")[0].decode("latin-1")
        return self._probes[path]() if method == b"GET" and path in self._probes else None

    def hot_path(self, url: bytes) -> VerbPath | None:
        """Return the prediction that a request line's target asks for; None: it is not one, or not as most send it."""
        try:
            found = self._hot_paths[url]
        except KeyError:
            found = self._remember_hot(url)
        return None if found is None or not (self._is_here is None or self._is_here(found)) else found

    def gathers(self, path: VerbPath) -> bool:
        """Return whether plain predictions of a path that was hot are answered together with others."""
        if self.has_access_log or self.is_draining or self.predictor.has_tracing:
            return False
        return self._is_here is None or self._is_here(path)

    def _remember_hot(self, url: bytes) -> VerbPath | None:
        # What is decided by who is at the other end can't be known by the head.
        plain = not (self.gate.looks_at_peers or any(byte in url for byte in b"%?#")) and url.isascii()
        found = self._remember(url.decode("ascii")) if plain else None
        if found is not None and found.verb != "predict":
            found = None
        if len(self._hot_paths) >= _MAX_PATHS:
            self._hot_paths.clear()
        if len(url) <= 1_024:
            self._hot_paths[url] = found
        return found

    def _remember(self, path: str) -> VerbPath | None:
        found = parse_verb_path(path)
        if found is not None and found.verb in _MANAGEMENT_VERBS:
            found = None
        if len(self._paths) >= _MAX_PATHS:
            self._paths.clear()
        if len(path) <= 1_024:
            self._paths[path] = found
        return found

    async def _predict(
        self, path: VerbPath, headers: PredictHeaders, request_id: str, scope: Scope, receive: Receive, send: Send
    ) -> int:
        """Answer one prediction and return its status."""
        received_s = time.monotonic()
        client = scope.get("client")
        try:
            if scope["method"] != "POST":
                raise MethodNotAllowed(scope["method"], scope["path"], allow=("POST",))
            rate = None
            if self.gate.guards_predictions:
                rate = self.gate.predict(scope["headers"], client, path.model)
            timeout_s = headers.timeout_s()
            wire = oip_format(headers.json_length) if path.is_oip else TFS_JSON
            body = await read_body(
                inflated(receive, headers.encoding),
                length_bytes=headers.length_bytes,
                limit_bytes=self.max_body_bytes,
                setting="max_body_bytes",
                budget=self.body_budget,
                timeout_s=self.body_timeout_s if timeout_s is None else timeout_s,
            )
        except RowwiseError as error:
            reply = self.predictor.refused(error)
            self.gate.refused(
                error,
                what=f"POST :{path.verb}",
                host=None if client is None else client[0],
                request_id=request_id,
                model=path.model,
            )
            if isinstance(error, ClientGone):
                return CLIENT_GONE
            if isinstance(error, BodyTimeout | BodiesWaiting):
                # The rest of the body may still come, and nobody wants it.
                reply.headers += ((b"connection", b"close"),)
        except asyncio.CancelledError:
            # Only a server that has to end cancels who waits.
            reply = stopped_reply()
        else:
            answered = await self._await_reply(
                path,
                body,
                receive,
                timeout_s=timeout_s,
                explain=headers.explain,
                request_id=request_id,
                traceparent=headers.traceparent,
                received_s=received_s,
                caller=None if client is None else client[0],
                wire=wire,
                rate=rate,
            )
            if answered is None:
                return CLIENT_GONE
            reply = answered
        await send_reply(send, reply, request_id)
        return reply.status

    async def _await_reply(
        self,
        path: VerbPath,
        body: bytes,
        receive: Receive,
        *,
        timeout_s: float | None,
        explain: bool,
        request_id: str,
        traceparent: bytes | None,
        received_s: float,
        caller: str | None,
        wire: WireFormat,
        rate: Rate | None,
    ) -> Reply | None:
        """Start a prediction and wait for its reply; None if the caller leaves first."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Reply | None] = loop.create_future()

        def on_reply(reply: Reply) -> None:
            if not answered.done():
                answered.set_result(reply)

        call = self.predictor.start(
            path,
            body,
            timeout_s=timeout_s,
            explain=explain,
            request_id=request_id,
            on_reply=on_reply,
            traceparent=traceparent,
            received_s=received_s,
            caller=caller,
            wire=wire,
            rate=rate,
        )
        if answered.done():
            return answered.result()
        listener = Listener(loop, receive, answered)
        try:
            reply = await answered
        except asyncio.CancelledError:
            # Only a server that has to end cancels who waits.
            call.abandon()
            return stopped_reply()
        finally:
            listener.stop()
        if reply is None:
            call.abandon()
        return reply

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> int:
        """Let the application behind answer, with our request id on the answer; return its status."""
        status = 0
        complete = False

        async def send_with_id(message: Message) -> None:
            nonlocal status, complete
            if status == CLIENT_GONE:
                return
            complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            if message["type"] == "http.response.start":
                status = message["status"]
                if status == CLIENT_GONE:
                    return
                headers = [header for header in message.get("headers", ()) if header[0] != b"x-request-id"]
                message = {**message, "headers": [*headers, (b"x-request-id", request_id.encode())]}
            await send(message)

        if b"%2f" in scope.get("raw_path", b"").lower():
            reply = error_reply(_slash_in_name(scope["path"]))
            await send_reply(send, reply, request_id)
            return reply.status
        path = canonical_path(scope["path"])
        scope = {**scope, "path": path, "raw_path": path.encode(), REQUEST_ID: request_id}
        try:
            if path == LIVE_PATH:
                await self._endless.answer(self._app, scope, receive, send_with_id)
            else:
                await self._app(scope, receive, send_with_id)
        except Exception:
            # The application has answered with 500 and raises so that the server can log it; we do that here, once.
            _LOG.exception(
                "request %s: %s %r failed", request_id, scope["method"], scope["path"], extra={"request_id": request_id}
            )
            if not complete:
                raise  # The answer has begun: only closing the connection can tell the caller.
        return status


async def send_reply(send: Send, reply: Reply, request_id: str) -> None:
    """Send a whole answer over ASGI."""
    headers = [
        *reply.headers,
        (b"content-length", b"%d" % len(reply.body)),
        (b"x-request-id", request_id.encode("ascii")),
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(reply.body)})


def _slash_in_name(path: str) -> RowwiseError:
    prefix = "/v1/models/"
    if path.lower().startswith(prefix):
        return InvalidName(path[len(prefix) :])
    return PathNotFound(f"nothing is served at {path!r}")
