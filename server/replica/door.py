"""The first that a request meets in a process of Ray Serve: an ASGI middleware, the same in proxies and in replicas.

In a replica that is asked directly (Ray Serve behind HAProxy), it answers what is Rowwise's there and then. Ray would
make a request context, two tasks and a log line of each request, which takes several times what answering it does.

In a proxy, it says what Ray says of a replica that was lost as everything else is said here: 503 with Retry-After, and
JSON, in place of 500 and text. Only requests that were on their way to that replica end so.

Ray Serve takes it by ``RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=server.replica.door:doors``.
"""

from __future__ import annotations

from typing import Any

from server.replica.present import present
from server.web.bodies import Message, Receive, Send
from server.web.front import App, Scope, send_reply
from server.web.request_headers import PredictHeaders, RequestIds
from server.web.status import JSON, Reply, error_body

__all__ = ["Door", "doors"]

#: What is Ray's own: ``/-/healthz`` and ``/-/routes``.
_RAYS = "/-/"
_LOST = Reply(
    503,
    error_body("the replica that had the request was lost, or none is there: send it again"),
    (JSON, (b"retry-after", b"1")),
)


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
        await self._app(scope, receive, _SaysLost(_with_one_id(send), request_id))


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
    """A ``send`` that replaces Ray's answer for a lost replica."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self._is_replaced = False

    async def __call__(self, message: Message) -> None:
        """Send a message, or what stands for it."""
        if message["type"] == "http.response.start" and _is_rays_failure(message):
            self._is_replaced = True
            await send_reply(self._send, _LOST, self._request_id)
        elif not self._is_replaced:
            await self._send(message)


def _is_rays_failure(message: Message) -> bool:
    """Return whether it begins an error of Ray's: ours are JSON."""
    if message["status"] not in (500, 503):
        return False
    kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
    return not any(kind.startswith(b"application/json") for kind in kinds)


def doors() -> list[Any]:
    """Return what Ray Serve is to wrap its applications in."""
    from starlette.middleware import Middleware

    return [Middleware(Door)]
