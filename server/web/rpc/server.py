"""gRPC's own server carries the services: on the event loop, with bytes in and bytes out.

Importing this imports gRPC, which takes a while: who starts it does so in a thread. Measured, see docs/grpc.md: a loop
of its own in another thread costs a fifth more for each call, as every call has to change threads twice.

How it leaves. Streams read no further and end when what they had is answered; for a moment new calls are told that the
server stops, then no more are let in. Those that run have the grace period.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from server.batching import Draining
from server.errors import RowwiseError
from server.web.front import Front
from server.web.interfaces import Catalog
from server.web.rpc.call import Call, Method, peer_address
from server.web.rpc.codes import Code, code_of, retry_metadata
from server.web.rpc.predictions import InternalFailure
from server.web.rpc.services import Services

__all__ = ["RpcServer"]

_LOG = logging.getLogger("rowwise.web")
_ACCESS = logging.getLogger("rowwise.access")

#: Seconds in which who had sent a call before it knew is told that the server stops.
_LAST_CALL_S = 0.1
#: Statuses travel in headers, which have a limit of their own.
_MAX_SENTENCE = 2_000
#: A message up to so many times the limit is received, to be refused with a sentence that names the setting; gRPC
#: refuses larger ones by their announced size, in words of its own.
_RECEIVED_LIMITS = 2

_STATUSES = {status.value[0]: status for status in grpc.StatusCode}


class RpcServer:
    """Serves over gRPC. ``connections``: most that are open at once. Everything is called on the event loop."""

    def __init__(self, front: Front, catalog: Catalog, *, connections: int) -> None:
        self._front = front
        self._leaving = asyncio.Event()
        self._services = Services(front, catalog, self._leaving)
        #: Handlers by path; no more than there are methods and mistakes.
        self._handlers: dict[str, grpc.RpcMethodHandler] = {}
        self._server = grpc.aio.server(
            handlers=(_Paths(self._handler),), options=_options(front.max_body_bytes, connections)
        )

    async def start(self, address: str, *, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen on ``host:port``, in the clear without ``credentials``; return the port.

        Errors: ValueError with the reason.
        """
        try:
            if credentials is None:
                port: int = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ValueError(f"gRPC can't listen on {address}: {error}") from None
        await self._server.start()
        return port

    async def stop(self, grace_s: float) -> None:
        """Leave, see the module, within ``grace_s`` seconds."""
        self._leaving.set()
        last_call_s = min(_LAST_CALL_S, grace_s / 10)
        await asyncio.sleep(last_call_s)
        await self._server.stop(grace_s - last_call_s)

    def _handler(self, path: str) -> grpc.RpcMethodHandler | None:
        found = self._handlers.get(path)
        if found is not None:
            return found
        method = self._services.find(path)
        if method is None:
            return None
        if method.unary is not None:
            handler = grpc.unary_unary_rpc_method_handler(self._unary(path, method))
        elif method.takes_one:
            handler = grpc.unary_stream_rpc_method_handler(self._stream(path, method))
        else:
            handler = grpc.stream_stream_rpc_method_handler(self._stream(path, method))
        if len(self._handlers) < 1_024:
            self._handlers[path] = handler
        return handler

    def _unary(self, path: str, method: Method) -> Callable[[bytes, Any], Any]:
        answer = method.unary
        assert answer is not None

        async def unary(body: bytes, context: Any) -> bytes:
            call = self._call(context)
            try:
                answered = await answer(call, body)
            except asyncio.CancelledError:
                self._log(path, call, "CANCELLED")
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets one answer
                await self._refuse(path, call, context, error)
                raise AssertionError("abort raises") from None
            call.trailing.append(("x-request-id", call.request_id))
            context.set_trailing_metadata(tuple(call.trailing))
            self._log(path, call, "OK")
            return answered

        return unary

    def _stream(self, path: str, method: Method) -> Callable[[Any, Any], AsyncIterator[bytes]]:
        answer = method.stream
        assert answer is not None

        async def stream(incoming: Any, context: Any) -> AsyncIterator[bytes]:
            call = self._call(context)
            context.set_trailing_metadata((("x-request-id", call.request_id),))
            requests = _one(incoming) if method.takes_one else self._until_leaving(incoming)
            try:
                async for message in answer(call, requests):
                    yield message
                if self._leaving.is_set():
                    raise Draining
            except asyncio.CancelledError:
                self._log(path, call, "CANCELLED")
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told
                await self._refuse(path, call, context, error)
            self._log(path, call, "OK")

        return stream

    def _call(self, context: Any) -> Call:
        metadata = dict(context.invocation_metadata() or ())
        given = metadata.get("x-request-id")
        request_id = self._front.ids.of(given.encode("latin-1", "replace") if isinstance(given, str) else given)
        return Call(
            metadata=metadata,
            peer=peer_address(context.peer()),
            request_id=request_id,
            timeout_s=context.time_remaining(),
        )

    async def _refuse(self, path: str, call: Call, context: Any, error: Exception) -> None:
        """End a call with an error. Raises."""
        trailing: tuple[tuple[str, str], ...] = (("x-request-id", call.request_id),)
        if isinstance(error, RowwiseError):
            code, sentence = code_of(error), str(error)
            trailing += retry_metadata(error)
        else:
            if not isinstance(error, InternalFailure):
                _LOG.error("request %s: %s failed", call.request_id, path, exc_info=error)
            code = Code.INTERNAL
            sentence = f"internal error: the server's log says more under request id {call.request_id}"
        self._log(path, call, code.name)
        await context.abort(_STATUSES[code], sentence[:_MAX_SENTENCE], trailing)

    async def _until_leaving(self, incoming: Any) -> AsyncIterator[bytes]:
        """Yield a stream's messages until it ends or the server stops."""
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            while True:
                taking = asyncio.ensure_future(anext(incoming, None))
                await asyncio.wait((taking, leaving), return_when=asyncio.FIRST_COMPLETED)
                if not taking.done() or (message := taking.result()) is None:
                    return
                yield message
        finally:
            leaving.cancel()

    def _log(self, path: str, call: Call, status: str) -> None:
        if self._front.has_access_log:
            duration_ms = (time.monotonic() - call.received_s) * 1e3
            _ACCESS.info("GRPC %r %s %.3f ms id=%s", path, status, duration_ms, call.request_id)


class _Paths(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Gives gRPC the handler of a path."""

    def __init__(self, find: Callable[[str], grpc.RpcMethodHandler | None]) -> None:
        self._find = find

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return who answers; None: nobody, which gRPC says."""
        return self._find(handler_call_details.method)


async def _one(message: bytes) -> AsyncIterator[bytes]:
    yield message


def _options(max_message_bytes: int, connections: int) -> tuple[tuple[str, int], ...]:
    return (
        # Without it two servers share a port, and neither knows.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", min(_RECEIVED_LIMITS * max_message_bytes, 2**31 - 1)),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", connections),
        # As many calls of one connection as its client likes are a way around the limit of connections.
        ("grpc.max_concurrent_streams", 1_024),
        # Callers behind something that forgets idle connections may ask every ten seconds whether we are there; we ask
        # once a minute, so that who has gone is noticed.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    )
