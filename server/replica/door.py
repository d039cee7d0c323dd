"""The first that a request meets in a process of Ray Serve: an ASGI middleware, the same in proxies and in replicas.

In a replica that is asked directly (Ray Serve behind HAProxy), it answers what is Rowwise's there and then, as far as
the ``lane`` has not. Ray would make a request context, two tasks and a log line of each request, which takes several
times what answering it does.

In a proxy, it says what Ray says of a replica that was lost as everything else is said here: 503 with Retry-After, and
JSON, in place of 500 and text, or of nothing: newer releases of Ray return without an answer then, and the HTTP server
would say 500. Only requests that were on their way to that replica end so. What other applications on the cluster
answer is left alone.

Ray Serve takes it by ``RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=server.replica.door:doors``.
"""

from __future__ import annotations

from typing import Any

from server.replica.lane import open_lane
from server.replica.present import present
from server.web.bodies import Message, Receive, Send
from server.web.front import App, Scope, send_reply
from server.web.request_headers import PredictHeaders, RequestIds
from server.web.status import JSON, Reply, error_body

__all__ = ["Door", "doors", "middlewares"]

#: What is Ray's own: ``/-/healthz`` and ``/-/routes``.
_RAYS = "/-/"
_LATER = (JSON, (b"retry-after", b"1"))
_LOST = Reply(503, error_body("the replica that had the request was lost: send it again"), _LATER)
#: How Ray's error begins where a replica's process was lost, or can't be reached (RayActorError).
_LOST_ACTOR = b"The actor"


class Door:
    """Wraps Ray Serve's application."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._ids = RequestIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http" or scope["path"].startswith(_RAYS):
            await self._app(scope, receive, send)
            return
        embedded = present.server
        if embedded is not None and embedded.is_here:
            await embedded(scope, receive, send)
            return
        request_id = self._ids.of(PredictHeaders(scope["headers"]).request_id)
        answer = _SaysLost(_with_one_id(send), request_id)
        await self._app(scope, receive, answer)
        await answer.finish()


def _with_one_id(send: Send) -> Send:
    """Return what sends one request id: Ray's own middleware, within this one, adds the id that our answer has."""

    async def send_once(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [header for header in message.get("headers", ()) if header[0].lower() != b"x-request-id"]
            ids = [header for header in message.get("headers", ()) if header[0].lower() == b"x-request-id"]
            message["headers"] = headers + ids[:1]
        await send(message)

    return send_once


class _SaysLost:
    """A ``send`` that says Ray's own failures as ours are said. Ray answers with one message of text."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        #: The start of an answer that may be Ray's, until its body shows it.
        self._held: Message | None = None
        self._has_begun = False

    async def __call__(self, message: Message) -> None:
        """Send a message, or what stands for it."""
        self._has_begun = True
        if message["type"] == "http.response.start" and _is_failure_in_text(message):
            self._held = message
            return
        held, self._held = self._held, None
        reply = None if held is None else _instead(held["status"], message.get("body", b""))
        if reply is not None:
            await send_reply(self._send, reply, self._request_id)
            return
        if held is not None:
            await self._send(held)
        await self._send(message)

    async def finish(self) -> None:
        """Say that the replica was lost, if the application has returned without an answer."""
        if not self._has_begun:
            await send_reply(self._send, _LOST, self._request_id)


def _is_failure_in_text(start: Message) -> bool:
    """Return whether an answer may be an error of Ray's: ours are JSON."""
    kinds = [value for name, value in start.get("headers", ()) if name.lower() == b"content-type"]
    return start["status"] in (500, 503) and any(kind.startswith(b"text/plain") for kind in kinds)


def _instead(status: int, text: bytes) -> Reply | None:
    """Return what is said in place of a failure; None: it is another application's, and stays as it is."""
    if status == 503:
        return Reply(503, error_body(text.decode(errors="replace") or "no replica is there"), _LATER)
    return _LOST if text.startswith(_LOST_ACTOR) else None


def doors() -> list[Any]:
    """Return what Ray Serve is to wrap its applications in, in the process that asks."""
    from ray import serve
    from ray.serve.exceptions import RayServeException

    try:
        serve.get_replica_context()
    except RayServeException:
        return middlewares(is_replica=False)
    return middlewares(is_replica=True)


def middlewares(*, is_replica: bool) -> list[Any]:
    """Return the door for a proxy, or for a replica of ours, which gets the lane as well.

    A replica of another application gets nothing: what it answers is its own.
    """
    from starlette.middleware import Middleware

    if is_replica:
        if present.server is None:
            return []
        open_lane()
    return [Middleware(Door)]
