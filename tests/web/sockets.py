"""A server with scripted models over real sockets, and a caller who sees every byte."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

from server.http_server import HttpServer, new_event_loop
from server.metrics import Metrics
from server.settings import Settings
from server.tls import Tls
from server.web import create_app
from server.web.crowding import with_room
from server.web.front import Front
from tests.web.scripted import ScriptedCatalog
from tests.web.scripted_model import ScriptedModel

Answer = tuple[int, dict[str, str], bytes]


class Connection:
    """A caller's end of one connection, which reads answers as they are framed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> Answer:
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 60)).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        return int(head[0].split()[1]), headers, await self.reader.readexactly(int(headers.get("content-length", 0)))

    async def is_closed(self) -> bool:
        return await asyncio.wait_for(self.reader.read(1), 60) == b""

    async def aclose(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


class Running:
    """A server with the hot lane and one scripted model, ``sum``."""

    def __init__(self, server: HttpServer, port: int, front: Front, catalog: ScriptedCatalog, metrics: Metrics) -> None:
        self.server = server
        self.port = port
        self.front = front
        self.catalog = catalog
        self.model = catalog.served["sum", 3]
        self.metrics = metrics
        self.budget = front.body_budget
        self._connections: list[Connection] = []

    async def connect(self) -> Connection:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        self._connections.append(connection)
        return connection

    async def aclose(self) -> None:
        """Close what callers left open."""
        for connection in self._connections:
            with suppress(OSError):
                await connection.aclose()

    def codes(self) -> dict[str, float]:
        return {
            sample.labels["code"]: sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "rowwise_requests_total"
        }


@asynccontextmanager
async def running(
    tmp_path: Path,
    *,
    keep_alive_s: int = 5,
    grace_s: float = 5.0,
    max_connections: int = 1_000,
    tls: Tls | None = None,
    **settings: Any,
) -> AsyncIterator[Running]:
    catalog = ScriptedCatalog(tmp_path)
    catalog.serve(ScriptedModel("sum", 3))
    metrics = Metrics(process=False)
    front = create_app(catalog, Settings(**settings), metrics)
    server = HttpServer(
        uvicorn.Config(
            front,
            http=with_room(front, most=max_connections),
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=keep_alive_s,
        ),
        grace_s=grace_s,
        tls=None if tls is None else tls.http,
        most=max_connections,
    )

    def begin_drain() -> None:
        catalog.is_draining = True
        catalog.not_ready = ["the server is stopping"]
        front.begin_drain()

    server.stop_on_signals(begin_drain)
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    one = Running(server, listener.getsockname()[1], front, catalog, metrics)
    try:
        yield one
    finally:
        # Callers go first: a server that stops waits a second for what those who are connected may be sending.
        await one.aclose()
        server.should_exit = True
        await serving


def request(*numbers: float, path: str = "/v1/models/sum:predict", headers: str = "", version: str = "1.1") -> bytes:
    body = json.dumps({"instances": [list(numbers)]}).encode()
    return (
        f"POST {path} HTTP/{version}\r\nHost: test\r\nContent-Type: application/json\r\n{headers}"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def total(answer: Answer) -> float:
    status, _, body = answer
    assert status == 200, body
    return float(json.loads(body)["predictions"][0])


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop go on until something has happened in it."""
    while not condition():  # noqa: ASYNC110 - the doubles have no events
        await asyncio.sleep(0.001)


def over_sockets(test: Callable[[Running, Connection], Awaitable[None]], tmp_path: Path, **options: Any) -> None:
    async def run() -> None:
        async with running(tmp_path, **options) as server:
            connection = await server.connect()
            await test(server, connection)

    # The loop that the server runs on: asyncio's own forgets who has just been accepted when a server is closed.
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())
