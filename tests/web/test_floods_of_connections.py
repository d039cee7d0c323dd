"""More connections than there is room for: who is told so, who is cut off, and who still gets answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from tests.web.scripted_model import ScriptedAnswer
from tests.web.sockets import Connection, Running, over_sockets, request, total, until

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: test\r\n\r\n"


def test_a_flood_of_connections_leaves_room_as_long_as_some_are_idle(tmp_path: Path) -> None:
    async def test(server: Running, first: Connection) -> None:
        first.send(request(1, 2, 3))
        assert total(await first.answer()) == 6
        server.model.holds = True
        busy = await server.connect()
        busy.send(request(5, 0, 0))
        await until(lambda: len(server.model.held) == 1)
        server.model.holds = False
        flood = [await server.connect() for _ in range(100)]
        await until(lambda: len(server.server.server_state.connections) <= 32)
        newcomer = await server.connect()
        newcomer.send(request(1, 1, 1))
        assert total(await newcomer.answer()) == 3
        server.model.held[0](ScriptedAnswer(outputs=[np.float32([5])]))
        assert total(await busy.answer()) == 5
        assert await flood[0].is_closed()

    over_sockets(test, tmp_path, max_connections=32)


def test_when_every_connection_is_in_use_newcomers_are_told_so_and_probes_are_answered(tmp_path: Path) -> None:
    async def test(server: Running, first: Connection) -> None:
        server.model.holds = True
        callers = [first, *[await server.connect() for _ in range(7)]]
        for caller in callers:
            caller.send(request(1, 2, 3))
        await until(lambda: len(server.model.held) == 8)
        # Those who come and say nothing are in nobody's way.
        silent = [await server.connect() for _ in range(40)]
        refused = await server.connect()
        refused.send(request(1, 2, 3))
        status, headers, body = await refused.answer()
        assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
        assert b"max_connections" in body
        probe = await server.connect()
        probe.send(LIVE)
        assert (await probe.answer())[::2] == (200, b'{"live":true}')
        assert (await silent[0].answer())[0] == 503
        for done in server.model.held:
            done(ScriptedAnswer(outputs=[np.float32([6])]))
        for caller in callers:
            assert total(await caller.answer()) == 6
        server.model.holds = False
        # It is looked now and then whether somebody has become idle.
        async with asyncio.timeout(60):
            while True:
                again = await server.connect()
                again.send(request(1, 2, 3))
                status, _, _ = answer = await again.answer()
                if status == 200:
                    break
                assert status == 503
        assert total(answer) == 6

    over_sockets(test, tmp_path, max_connections=8)


def test_a_flood_from_one_address_costs_that_address_its_connections_first(tmp_path: Path) -> None:
    async def test(server: Running, _: Connection) -> None:
        other = Connection(*await asyncio.open_connection("127.0.0.1", server.port, local_addr=("127.0.0.2", 0)))
        other.send(request(1, 2, 3))
        assert total(await other.answer()) == 6
        for _ in range(60):
            await server.connect()
        await until(lambda: len(server.server.server_state.connections) <= 16)
        other.send(request(1, 1, 1))
        assert total(await other.answer()) == 3
        await other.aclose()

    over_sockets(test, tmp_path, max_connections=16)
