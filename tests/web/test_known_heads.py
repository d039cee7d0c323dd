"""Which heads of requests the server remembers, and how many."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from server.protocol import TFS_JSON
from server.web.hot_request import HotRequest
from server.web.known_heads import KnownHeads
from server.web.paths import VerbPath
from tests.web.plain_requests import HEAD, PLAIN, head_of
from tests.web.sockets import Connection, Running, over_sockets, request, total


@pytest.mark.parametrize(
    "own",
    ["X-Request-Id: mine\r\n", "X-Rowwise-Explain: 1\r\n"],
)
def test_a_head_with_something_of_its_own_is_not_remembered(tmp_path: Path, own: str) -> None:
    async def test(server: Running, connection: Connection) -> None:
        asked = request(1, 2, 3, headers=own)
        connection.send(asked)
        assert total(await connection.answer()) == 6
        assert server.server.config.app.known_heads.find(head_of(asked)) is None

    over_sockets(test, tmp_path)


@pytest.mark.parametrize("comes", ["at once", "after its head"])
def test_a_known_head_that_asks_to_close_is_answered_so(tmp_path: Path, comes: str) -> None:
    async def test(server: Running, connection: Connection) -> None:
        asked = request(1, 2, 3, headers="Connection: close\r\n")
        head = head_of(asked)
        connections = [connection, *[await server.connect() for _ in range(3)]]
        for each in connections:
            if comes == "at once":
                each.send(asked)
            else:
                each.send(head)
                await asyncio.sleep(0.01)
                each.send(asked.removeprefix(head))
            answer = await each.answer()
            assert total(answer) == 6
            assert answer[1]["connection"] == "close"
            assert await each.is_closed()
            assert server.server.config.app.known_heads.find(head) is not None
        # What follows it is not answered.
        last = await server.connect()
        last.send(asked)
        last.send(PLAIN)
        assert total(await last.answer()) == 6
        assert await last.is_closed()
        # The same bytes but for that header are another head.
        staying = await server.connect()
        for _ in range(3):
            staying.send(PLAIN)
            assert total(await staying.answer()) == 6

    over_sockets(test, tmp_path)


@pytest.mark.parametrize("rest", [b"\r\n", b"P", PLAIN, PLAIN[:30]], ids=["blank", "a letter", "a request", "half"])
def test_a_head_is_remembered_only_of_a_request_that_came_alone(tmp_path: Path, rest: bytes) -> None:
    async def test(server: Running, connection: Connection) -> None:
        connection.send(PLAIN + rest)
        assert total(await connection.answer()) == 6
        assert server.server.config.app.known_heads.find(HEAD) is None
        # What is left over still belongs to the next one.
        connection.send(PLAIN.removeprefix(rest))
        assert total(await connection.answer()) == 6

    over_sockets(test, tmp_path)


def test_known_heads_are_bounded() -> None:
    heads = KnownHeads()
    hot = HotRequest(None, VerbPath("m", None, None, "predict"), None, None, explain=False, wire=TFS_JSON)  # type: ignore[arg-type]
    hot.n_received = hot.n_body = 4
    for number in range(5_000):
        heads.remember(b"POST /%d HTTP/1.1\r\n\r\nbody" % number, hot)
    assert heads.find(b"POST /4999 HTTP/1.1\r\n\r\n") is not None
    assert heads.find(b"POST /0 HTTP/1.1\r\n\r\n") is None
    hot.n_received = hot.n_body = 0
    heads.remember(b"P" * 2_000 + b"\r\n\r\n", hot)
    assert heads.find(b"P" * 2_000 + b"\r\n\r\n") is None
    heads.forget()
    assert heads.find(b"POST /4999 HTTP/1.1\r\n\r\n") is None
