"""One server for a module of tests: the real HTTP and gRPC stacks over sockets, models that are NumPy.

The server's loop runs while somebody asks, so that a test is an ordinary function.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import grpc.aio

from server.http_server import new_event_loop
from server.protocol.messages import message_class
from server.web.rpc.server import RpcServer
from tests.web.scripted import ScriptedCatalog
from tests.web.scripted_model import ScriptedModel
from tests.web.sockets import Answer, Connection, running

__all__ = ["Refused", "Server"]


class Refused(Exception):
    """The server did not answer with a prediction. ``code``: HTTP's status, or gRPC's name of one."""

    def __init__(self, code: int | str, sentence: str, headers: dict[str, Any]) -> None:
        super().__init__(f"{code}: {sentence}")
        self.code = code
        self.sentence = sentence
        self.headers = headers


class Server:
    """A server, and a caller who waits for each answer. Use it as a context."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._directory = directory
        self._settings = settings

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner(loop_factory=new_event_loop)
        self._runner.__enter__()
        self.run(self._start())
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.run(self._stop())
        finally:
            self._runner.__exit__(*exc)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Let the server's loop run until something is done."""
        return self._runner.run(coroutine)

    def serve(self, model: ScriptedModel, **record: Any) -> ScriptedModel:
        """Add a version, as the active one."""
        return self.catalog.serve(model, **record)

    def send(self, data: bytes) -> Answer:
        """Send the bytes of a request over the connection, and return status, headers and body of the answer."""
        return self.run(self._send(data))  # type: ignore[no-any-return]

    def post(self, path: str, body: bytes, *headers: str, in_pieces: bool = False) -> Answer:
        """Send a body, whole or in pieces, which takes another way through the server."""
        head = "".join(f"{line}\r\n" for line in (f"POST {path} HTTP/1.1", "Host: test", *headers))
        if not in_pieces:
            return self.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        half = len(body) // 2
        chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:half], body[half:], b"") if piece or half]
        return self.send(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + b"".join(chunks[:2]) + b"0\r\n\r\n")

    def together(self, path: str, bodies: Sequence[bytes]) -> list[Answer]:
        """Send bodies over connections of their own, so that they are there in the same tick; return the answers."""
        return self.run(self._together(path, bodies))  # type: ignore[no-any-return]

    def call(self, method: str, request: Any, response: str, **options: Any) -> Any:
        """Call a gRPC method. Errors: Refused."""
        return self.run(self._call(method, request, message_class(response), options))

    def stream(self, method: str, requests: Sequence[Any], response: str) -> list[Any]:
        """Send requests in one stream of gRPC, and return its answers. Errors: Refused."""
        return self.run(self._stream(method, requests, message_class(response)))  # type: ignore[no-any-return]

    async def _start(self) -> None:
        self._stack = AsyncExitStack()
        # Connections stay open between tests, however long those take.
        one = await self._stack.enter_async_context(running(self._directory, keep_alive_s=600, **self._settings))
        self.catalog: ScriptedCatalog = one.catalog
        self.front = one.front
        self._connect = one.connect
        self._connection: Connection = await one.connect()
        rpc = RpcServer(one.front, one.catalog, connections=16)
        listener = socket.create_server(("127.0.0.1", 0))
        await rpc.start(listener)
        self._stack.push_async_callback(rpc.stop, 0.0)
        self.channel = grpc.aio.insecure_channel(
            f"127.0.0.1:{listener.getsockname()[1]}",
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
        )
        self._stack.push_async_callback(self.channel.close)

    async def _stop(self) -> None:
        await self._stack.aclose()

    async def _send(self, data: bytes) -> Answer:
        self._connection.send(data)
        answer = await self._connection.answer()
        if answer[1].get("connection") == "close":
            self._connection = await self._connect()
        return answer

    async def _together(self, path: str, bodies: Sequence[bytes]) -> list[Answer]:
        connections = [await self._connect() for _ in bodies]
        for connection, body in zip(connections, bodies, strict=True):
            head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.send(head.encode() + body)
        return [await connection.answer() for connection in connections]

    async def _call(self, method: str, request: Any, response: Any, options: dict[str, Any]) -> Any:
        body = request if isinstance(request, bytes) else request.SerializeToString()
        try:
            return response.FromString(await self.channel.unary_unary(method)(body, timeout=60, **options))
        except grpc.aio.AioRpcError as error:
            trailing = dict(error.trailing_metadata() or ())
            raise Refused(error.code().name, error.details() or "", trailing) from None

    async def _stream(self, method: str, requests: Sequence[Any], response: Any) -> list[Any]:
        call = self.channel.stream_stream(method)(iter([one.SerializeToString() for one in requests]), timeout=60)
        try:
            return [response.FromString(answer) async for answer in call]
        except grpc.aio.AioRpcError as error:
            raise Refused(error.code().name, error.details() or "", dict(error.trailing_metadata() or ())) from None
