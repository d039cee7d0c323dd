"""Bodies that come after the heads of their requests: read, answered and given up like those that come with them."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path

from tests.web.plain_requests import HEAD, PLAIN, head_of, known, several
from tests.web.sockets import Connection, Running, over_sockets, request, total, until

N = len(HEAD)


async def in_parts(server: Running, *parts: bytes) -> None:
    """Let the server's only connection receive a request in parts, each of them by itself."""
    connections = server.server.server_state.connections
    await until(lambda: len(connections) == 1)
    (protocol,) = connections
    for part in parts:
        protocol.data_received(part)
        await asyncio.sleep(0)


def test_a_body_may_come_after_its_head(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        heads = server.server.config.app.known_heads
        for cuts in [(N,), (N, N + 5), (N + 1, N + 2, len(PLAIN) - 1), (5, N), (N - 1,), (N - 2, N + 3)]:
            heads.forget()
            for _ in range(3):
                await in_parts(server, *[PLAIN[start:stop] for start, stop in pairwise([0, *cuts, len(PLAIN)])])
                assert total(await connection.answer()) == 6
            assert (heads.find(HEAD) is not None) == (cuts[0] >= N)
        assert server.codes() == {"200": 18.0}
        assert server.budget._n_bytes == 0

    over_sockets(test, tmp_path)


def test_heads_and_bodies_that_come_apart_are_answered_together(tmp_path: Path) -> None:
    async def test(server: Running, first: Connection) -> None:
        await known(server, first)
        connections = [first, *await several(server, 5)]
        server.model.rows.clear()
        protocols = list(server.server.server_state.connections)
        for protocol in protocols:
            protocol.data_received(HEAD)
        for protocol in protocols:
            protocol.data_received(PLAIN[N:])
        assert [total(await connection.answer()) for connection in connections] == [6] * 6
        assert len({id(rows.columns[0].base) for rows in server.model.rows}) == 1
        assert server.budget._n_bytes == 0

    over_sockets(test, tmp_path)


def test_what_follows_a_body_that_came_apart_is_the_next_request(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        await known(server, connection)
        await in_parts(server, HEAD, PLAIN[N:] + request(4, 2, 3), PLAIN[:30], PLAIN[30:] + b"\r\n", PLAIN)
        assert [total(await connection.answer()) for _ in range(4)] == [6, 9, 6, 6]

    over_sockets(test, tmp_path)


def test_a_body_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    asked = request(1, 2, 3, headers="X-Request-Timeout-Ms: 60\r\n")
    head = head_of(asked)

    async def test(server: Running, connection: Connection) -> None:
        connection.send(asked)
        assert total(await connection.answer()) == 6
        assert server.server.config.app.known_heads.find(head) is not None
        connection.send(head + b"{")
        status, headers, _ = await connection.answer()
        assert (status, headers["connection"]) == (504, "close")
        connection.send(PLAIN)
        assert await connection.is_closed()
        assert server.codes() == {"200": 1.0, "504": 1.0}
        assert server.budget._n_bytes == 0

    over_sockets(test, tmp_path)


def test_a_deadline_counts_from_the_head_and_is_nobody_elses(tmp_path: Path) -> None:
    asked = request(1, 2, 3, headers="X-Request-Timeout-Ms: 6000\r\n")
    head = head_of(asked)

    async def test(server: Running, connection: Connection) -> None:
        connections = [connection, await server.connect()]
        for one in connections:
            one.send(asked)
            assert total(await one.answer()) == 6
        slow, quick = server.server.server_state.connections
        server.model.spent_s.clear()
        began_s = time.monotonic()
        slow.data_received(head)
        begun_s = time.monotonic()
        await asyncio.sleep(0.1)
        waited_s = time.monotonic()
        quick.data_received(head)
        slow.data_received(asked[len(head) :])
        quick.data_received(asked[len(head) :])
        assert [total(await one.answer()) for one in connections] == [6, 6]
        less, more = sorted(server.model.spent_s)
        assert less <= time.monotonic() - waited_s
        assert waited_s - begun_s <= more <= time.monotonic() - began_s

    over_sockets(test, tmp_path)


def test_who_leaves_before_the_body_is_there_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        await known(server, connection)
        await in_parts(server, HEAD + b'{"ins')
        connection.writer.transport.abort()
        await until(lambda: not server.server.server_state.connections)
        assert server.budget._n_bytes == 0
        assert len(server.model.rows) == 1

    over_sockets(test, tmp_path)


def test_stopping_waits_for_a_body_that_is_under_way(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        await known(server, connection)
        await in_parts(server, HEAD)
        server.server.should_exit = True
        await asyncio.sleep(0.2)
        await in_parts(server, PLAIN[N:])
        status, headers, _ = await connection.answer()
        assert (status, headers["connection"]) == (200, "close")

    over_sockets(test, tmp_path)
