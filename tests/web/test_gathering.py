"""Plain predictions of one tick are read, admitted and answered together, and nobody can tell."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from server.batching import QueueFull, Returning
from server.protocol import TFS_JSON
from server.web import gathering
from server.web.hot_request import HotRequest
from server.web.known_heads import KnownHeads
from server.web.paths import VerbPath
from tests.web.scripted import ScriptedAnswer
from tests.web.sockets import Connection, Running, over_sockets, request, total, until

PLAIN = request(1, 2, 3)
HEAD = PLAIN[: PLAIN.index(b"\r\n\r\n") + 4]


async def known(server: Running, connection: Connection) -> None:
    """Let the server see what a plain request looks like."""
    connection.send(PLAIN)
    assert total(await connection.answer()) == 6
    assert server.server.config.app.known_heads.find(HEAD) is not None


async def several(server: Running, n: int) -> list[Connection]:
    connections = [await server.connect() for _ in range(n)]
    for connection in connections:
        await known(server, connection)
    return connections


def test_requests_that_come_together_are_one_array_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    async def test(server: Running, _: Connection) -> None:
        connections = await several(server, 6)
        server.model.rows.clear()
        for number, connection in enumerate(connections):
            connection.send(request(number, 2, 3))
        answers = [await connection.answer() for connection in connections]
        assert [total(answer) for answer in answers] == [number + 5 for number in range(6)]
        assert len({answer[1]["x-request-id"] for answer in answers}) == 6
        bases = {id(rows.columns[0].base) for rows in server.model.rows}
        assert len(bases) < 6, "several rows lie in one array"
        assert server.codes() == {"200": 12.0}

    over_sockets(test, tmp_path)


def test_who_would_only_wait_for_others_is_read_together_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "_LOOK_S", 0.3)

    async def test(server: Running, _: Connection) -> None:
        first, second = await several(server, 2)
        server.model.rows.clear()
        server.model.n_awaited = 2
        first.send(PLAIN)
        # Another tick of the loop, which serves in this thread: long enough apart to be seen alone.
        await asyncio.sleep(0)
        second.send(PLAIN)
        assert [total(await connection.answer()) for connection in (first, second)] == [6, 6]
        one, other = server.model.rows
        assert one.columns[0].base is other.columns[0].base
        # Who does not come is not waited for.
        first.send(PLAIN)
        assert total(await first.answer()) == 6

    over_sockets(test, tmp_path)


def test_callers_are_expected_back_from_their_answer_to_their_next_request(tmp_path: Path) -> None:
    async def test(server: Running, _: Connection) -> None:
        connections = await several(server, 3)
        returning = server.model.returning = Returning()
        for connection in connections:
            connection.send(PLAIN)
        for connection in connections:
            assert total(await connection.answer()) == 6
        returning.answered(3 - returning.n_rows, time.monotonic())  # the core counts those that it ran together
        server.model.holds = True
        connections[0].send(PLAIN)
        await until(lambda: returning.n_rows == 2)
        connections[1].writer.transport.abort()
        await until(lambda: returning.n_rows == 1)

    over_sockets(test, tmp_path)


def test_a_bad_body_among_them_gets_its_error_and_the_others_their_answers(tmp_path: Path) -> None:
    async def test(server: Running, _: Connection) -> None:
        connections = await several(server, 5)
        bodies = [b'{"instances": [[1, 2, 3]]}'] * 5
        bodies[2] = b'{"instances": [[1, 2, "]]}'
        for connection, body in zip(connections, bodies, strict=True):
            connection.send(HEAD + body)
        answers = [await connection.answer() for connection in connections]
        assert [answer[0] for answer in answers] == [200, 200, 400, 200, 200]
        assert server.codes() == {"200": 9.0, "400": 1.0}

    over_sockets(test, tmp_path)


def test_who_is_refused_is_told_so(tmp_path: Path) -> None:
    async def test(server: Running, _: Connection) -> None:
        connections = await several(server, 3)
        server.model.refusal = QueueFull("the queue is full", retry_after_s=2.5)
        for connection in connections:
            connection.send(PLAIN)
        answers = [await connection.answer() for connection in connections]
        assert [(answer[0], answer[1]["retry-after"]) for answer in answers] == [(429, "3")] * 3

    over_sockets(test, tmp_path)


def test_a_model_that_admits_nobody_reads_no_bodies(tmp_path: Path) -> None:
    async def test(server: Running, _: Connection) -> None:
        connections = await several(server, 3)
        server.model.refusal_of_all = QueueFull("the queue is full", retry_after_s=2.5)
        for connection in connections:
            connection.send(HEAD + b'{"instances": [[1, 2, "]]}')
        answers = [await connection.answer() for connection in connections]
        assert [(answer[0], answer[1]["retry-after"]) for answer in answers] == [(429, "3")] * 3
        assert server.codes() == {"200": 3.0, "429": 3.0}

    over_sockets(test, tmp_path)


def test_a_bug_of_ours_on_the_way_is_answered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Running, _: Connection) -> None:
        connections = await several(server, 3)

        def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError("secret")

        monkeypatch.setattr(server.model, "predict_many", broken)
        for connection in connections:
            connection.send(PLAIN)
        answers = [await connection.answer() for connection in connections]
        assert [answer[0] for answer in answers] == [500] * 3
        assert not any(b"secret" in answer[2] for answer in answers)
        assert server.codes() == {"200": 3.0, "500": 3.0}

    over_sockets(test, tmp_path)


def test_deadlines_that_differ_are_kept_apart(tmp_path: Path) -> None:
    async def test(server: Running, _: Connection) -> None:
        asked = [request(1, 2, 3, headers=f"X-Request-Timeout-Ms: {ms}\r\n") for ms in (5_000, 7_000)]
        connections = [await server.connect() for _ in range(4)]
        for _ in range(2):
            server.model.timeouts_s.clear()
            for number, connection in enumerate(connections):
                connection.send(asked[number % 2])
            assert [total(await connection.answer()) for connection in connections] == [6, 6, 6, 6]
            assert sorted(server.model.timeouts_s) == [5.0, 5.0, 7.0, 7.0]
        assert all(
            server.server.config.app.known_heads.find(one[: one.index(b"\r\n\r\n") + 4]) is not None for one in asked
        )

    over_sockets(test, tmp_path)


def test_rows_of_a_caller_who_leaves_are_taken_back_and_counted_once(tmp_path: Path) -> None:
    async def test(server: Running, _: Connection) -> None:
        leaving, staying = await several(server, 2)
        server.model.holds = True
        server.model.tickets.clear()
        leaving.send(PLAIN)
        staying.send(PLAIN)
        await until(lambda: len(server.model.held) == 2)
        leaving.writer.transport.abort()
        await until(lambda: any(ticket.cancelled for ticket in server.model.tickets))
        for on_done in server.model.held:
            on_done(ScriptedAnswer(outputs=[np.float32([6])]))
        assert total(await staying.answer()) == 6
        assert server.codes() == {"200": 3.0, "499": 1.0}
        assert sum(ticket.cancelled for ticket in server.model.tickets) == 1

    over_sockets(test, tmp_path)


def test_a_caller_who_leaves_in_the_tick_of_its_request_is_not_admitted(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        await known(server, connection)
        (protocol,) = server.server.server_state.connections
        server.model.rows.clear()
        protocol.data_received(PLAIN)
        protocol.connection_lost(None)
        await asyncio.sleep(0.01)
        assert server.model.rows == []
        assert server.codes() == {"200": 1.0, "499": 1.0}

    over_sockets(test, tmp_path)


def test_an_answer_waits_for_those_before_it(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        await known(server, connection)
        server.model.holds = True
        server.model.held.clear()
        connection.send(PLAIN)
        await until(lambda: len(server.model.held) == 1)
        connection.send(PLAIN)
        await until(lambda: len(server.model.held) == 2)
        server.model.held[1](ScriptedAnswer(outputs=[np.float32([2])]))
        await asyncio.sleep(0.01)
        server.model.held[0](ScriptedAnswer(outputs=[np.float32([1])]))
        assert [total(await connection.answer()), total(await connection.answer())] == [1, 2]

    over_sockets(test, tmp_path)


def test_stopping_answers_them_and_closes(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        await known(server, connection)
        server.model.holds = True
        connection.send(PLAIN)
        await until(lambda: len(server.model.held) == 1)
        server.server.should_exit = True
        await asyncio.sleep(0.2)
        server.model.held[0](ScriptedAnswer(outputs=[np.float32([6])]))
        status, headers, _ = await connection.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert await connection.is_closed()

    over_sockets(test, tmp_path)


@pytest.mark.parametrize(
    "own",
    ["X-Request-Id: mine\r\n", "X-Rowwise-Explain: 1\r\n", "Connection: close\r\n"],
)
def test_a_head_with_something_of_its_own_is_not_remembered(tmp_path: Path, own: str) -> None:
    async def test(server: Running, connection: Connection) -> None:
        asked = request(1, 2, 3, headers=own)
        connection.send(asked)
        assert total(await connection.answer()) == 6
        assert server.server.config.app.known_heads.find(asked[: asked.index(b"\r\n\r\n") + 4]) is None

    over_sockets(test, tmp_path)


async def in_parts(server: Running, *parts: bytes) -> None:
    """Let the server's only connection receive a request in parts, each of them by itself."""
    connections = server.server.server_state.connections
    await until(lambda: len(connections) == 1)
    (protocol,) = connections
    for part in parts:
        protocol.data_received(part)
        await asyncio.sleep(0)


N = len(HEAD)


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
    head = asked[: asked.index(b"\r\n\r\n") + 4]

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
    head = asked[: asked.index(b"\r\n\r\n") + 4]

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
