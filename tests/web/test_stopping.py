"""Promise 11: SIGTERM. Not ready at once, what was admitted is answered, then the end within the grace period."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.web.scripted_model import ScriptedAnswer
from tests.web.sockets import Connection, Running, over_sockets, request, total, until

READY = b"GET /v2/health/ready HTTP/1.1\r\nHost: test\r\n\r\n"


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def stopped(server: Running) -> None:
    """Return when nobody can connect any more."""
    async with asyncio.timeout(10):
        while True:
            try:
                await (await server.connect()).aclose()
            except OSError:
                return
            await asyncio.sleep(0.01)


def test_while_draining_a_known_model_is_503_and_not_unknown_and_running_requests_end(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        idle = await server.connect()
        idle.send(request(1, 1, 1))
        assert total(await idle.answer()) == 3
        server.model.holds = True
        connection.send(request(1, 2, 3))
        await server.model.admitted.wait()
        await until(lambda: bool(server.model.held))
        terminate()
        await asyncio.sleep(0.3)
        newcomer = await server.connect()
        for caller, asked in ((newcomer, request(1, 2, 3)), (idle, request(1, 2, 3)), (await server.connect(), READY)):
            caller.send(asked)
            status, headers, body = await caller.answer()
            assert (status, headers["connection"]) == (503, "close")
            assert int(headers["retry-after"]) >= 1
            assert "the server is stopping" in json.loads(body)["error"]
            assert await caller.is_closed()
        unknown = await server.connect()
        unknown.send(request(1, 2, 3, path="/v1/models/nobody:predict"))
        assert (await unknown.answer())[0] == 404
        server.model.held[0](ScriptedAnswer(outputs=[np.float32([6])]))
        assert total(await connection.answer()) == 6
        assert await connection.is_closed()
        await stopped(server)

    over_sockets(test, tmp_path)


def test_a_sigterm_under_load_loses_no_request_that_was_accepted(tmp_path: Path) -> None:
    async def test(server: Running, _: Connection) -> None:
        ends: Counter[str] = Counter()

        async def ask_until_refused(*, keeps_connection: bool) -> None:
            while True:
                try:
                    caller = await server.connect()
                except OSError:
                    ends["refused"] += 1
                    return
                while True:
                    caller.send(request(1, 2, 3))
                    try:
                        status, headers, _ = await caller.answer()
                    except (OSError, asyncio.IncompleteReadError):
                        ends["lost"] += 1
                        return
                    ends[str(status)] += 1
                    if headers.get("connection") == "close" or not keeps_connection:
                        break
                await caller.aclose()

        callers = [asyncio.create_task(ask_until_refused(keeps_connection=number % 2 == 0)) for number in range(16)]
        await until(lambda: ends["200"] > 100)
        terminate()
        await asyncio.gather(*callers)
        assert ends["lost"] == 0, ends
        assert set(ends) <= {"200", "503", "refused", "lost"}

    over_sockets(test, tmp_path)


@pytest.mark.parametrize("unusual", ["", "Expect: \r\n"], ids=["hot", "cold"])
def test_who_is_not_answered_within_the_grace_period_is_told(tmp_path: Path, unusual: str) -> None:
    async def test(server: Running, connection: Connection) -> None:
        server.model.holds = True
        connection.send(request(1, 2, 3, headers=unusual))
        await server.model.admitted.wait()
        began_s = asyncio.get_running_loop().time()
        terminate()
        status, headers, body = await connection.answer()
        assert (status, headers["retry-after"]) == (503, "5")
        assert "has to end before this is answered" in json.loads(body)["error"]
        assert asyncio.get_running_loop().time() - began_s >= 0.5
        assert server.model.tickets[0].cancelled
        await stopped(server)

    over_sockets(test, tmp_path, grace_s=0.6)


def test_a_second_sigterm_ends_at_once(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        server.model.holds = True
        connection.send(request(1, 2, 3))
        await server.model.admitted.wait()
        terminate()
        await asyncio.sleep(0.2)
        terminate()
        await stopped(server)

    over_sockets(test, tmp_path, grace_s=60.0)
