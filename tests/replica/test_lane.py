"""The lane of a replica, in a uvicorn that is started as Ray Serve starts it: what it answers, and what it leaves."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from uvicorn.config import HTTP_PROTOCOLS

from server.http_server import new_event_loop
from server.metrics import Metrics
from server.replica.door import Door, middlewares
from server.replica.present import present
from server.settings import Settings
from server.web import create_app
from server.web.front import Front
from tests.web.scripted import ScriptedCatalog
from tests.web.scripted_model import ScriptedAnswer, ScriptedModel
from tests.web.sockets import Connection, request, total, until


class Embedded:
    """Stands for the embedded server: its front, and what came to it by ASGI."""

    is_here = True

    def __init__(self, front: Front, model: ScriptedModel) -> None:
        self.front = front
        self.model = model
        self.asked: list[str] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        await self.front(scope, receive, send)


async def rays(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer everything as Ray."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"Ray's"})


@pytest.fixture(autouse=True)
def left_as_it_was() -> Iterator[None]:
    before = dict(HTTP_PROTOCOLS)
    yield
    HTTP_PROTOCOLS.update(before)
    present.server = None


@asynccontextmanager
async def replica(
    tmp_path: Path, *, root_path: str = "", **settings: Any
) -> AsyncIterator[tuple[Embedded, Connection, uvicorn.Server]]:
    catalog = ScriptedCatalog(tmp_path)
    model = ScriptedModel("sum", 3)
    catalog.serve(model)
    embedded = Embedded(create_app(catalog, Settings(**settings), Metrics(process=False)), model)
    present.server = embedded  # type: ignore[assignment]
    (middleware,) = middlewares(is_replica=True)
    assert middleware.cls is Door
    app = Door(rays)
    options: dict[str, Any] = {"lifespan": "off", "access_log": False, "log_config": None}
    server = uvicorn.Server(uvicorn.Config(lambda: app, factory=True, root_path=root_path, **options))
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server._serve(sockets=[listener]))
    connection = Connection(*await asyncio.open_connection("127.0.0.1", listener.getsockname()[1]))
    try:
        yield embedded, connection, server
    finally:
        server.should_exit = True
        await connection.aclose()
        await serving


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def awaited() -> None:
        await test()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(awaited())


def port_of(server: uvicorn.Server) -> int:
    port: int = server.servers[0].sockets[0].getsockname()[1]
    return port


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode()


def test_predictions_are_answered_without_asgi(tmp_path: Path) -> None:
    async def test() -> None:
        async with replica(tmp_path) as (embedded, connection, _):
            for number in range(5):
                connection.send(request(number, 1, 1))
                assert total(await connection.answer()) == number + 2
            connection.send(request(1, 2))
            status, headers, body = await connection.answer()
            assert (status, headers["content-type"]) == (400, "application/json"), body
            assert embedded.asked == []

    run(test)


def test_all_else_goes_through_the_door(tmp_path: Path) -> None:
    async def test() -> None:
        async with replica(tmp_path) as (embedded, connection, _):
            connection.send(get("/v2/health/live"))
            assert (await connection.answer())[2] == b'{"live":true}'
            connection.send(get("/-/healthz"))
            assert (await connection.answer())[2] == b"Ray's"
            connection.send(request(1, 2, 3))
            assert total(await connection.answer()) == 6
            assert embedded.asked == ["/v2/health/live"]

    run(test)


def test_a_proxy_on_this_machine_may_not_do_what_callers_on_this_machine_may(tmp_path: Path) -> None:
    async def test() -> None:
        async with replica(tmp_path, protect_predict=True) as (_, connection, _):
            for message in (get("/v1/models"), request(1, 2, 3)):
                connection.send(message)
                status, _, body = await connection.answer()
                assert (status, "on this machine" in json.loads(body)["error"]) == (403, True)

    run(test)


def test_what_connects_once_the_server_has_stopped_is_answered_by_ray(tmp_path: Path) -> None:
    async def test() -> None:
        async with replica(tmp_path) as (_, _, server):
            present.server = None
            later = Connection(*await asyncio.open_connection("127.0.0.1", port_of(server)))
            later.send(request(1, 2, 3))
            assert (await later.answer())[2] == b"Ray's"
            await later.aclose()

    run(test)


def test_a_server_below_a_path_has_no_lane(tmp_path: Path) -> None:
    async def test() -> None:
        async with replica(tmp_path, root_path="/below") as (embedded, connection, _):
            connection.send(request(1, 2, 3))
            await connection.answer()
            assert embedded.asked == ["/below/v1/models/sum:predict"]

    run(test)


def test_who_waits_when_ray_ends_the_server_is_answered_before_it_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with replica(tmp_path) as (embedded, connection, server):
            embedded.model.holds = True
            connection.send(request(1, 0, 0))
            await embedded.model.admitted.wait()
            server.should_exit = True
            await until(lambda: not server.servers[0].is_serving())
            embedded.model.held[0](ScriptedAnswer(outputs=[np.float32([1])]))
            assert total(await connection.answer()) == 1
            assert await connection.is_closed()

    run(test)
