"""Plain predictions of one tick are read, admitted and answered together, and nobody can tell."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np
import pytest

from server.batching import QueueFull, Returning
from server.web import gathering
from tests.web.plain_requests import HEAD, PLAIN, head_of, known, several
from tests.web.scripted_model import ScriptedAnswer
from tests.web.sockets import Connection, Running, over_sockets, request, total, until


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


def test_while_no_batch_can_begin_requests_of_a_millisecond_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "_PAUSE_S", 0.3)
    monkeypatch.setattr(gathering, "_MAX_PAUSING", 3)

    async def test(server: Running, _: Connection) -> None:
        first, second, third = connections = await several(server, 3)
        server.model.rows.clear()
        server.model.free_in_s = 0.01
        began_s = time.monotonic()
        first.send(PLAIN)
        await asyncio.sleep(0.05)
        assert server.model.rows == []
        second.send(PLAIN)
        assert [total(await connection.answer()) for connection in (first, second)] == [6, 6]
        assert time.monotonic() - began_s >= 0.29
        one, other = server.model.rows
        assert one.columns[0].base is other.columns[0].base
        assert min(server.model.spent_s[-2:]) >= 0.25, "the pause is part of a deadline"
        # As many as are worth reading are read at once, and whoever finds an executor free.
        monkeypatch.setattr(gathering, "_PAUSE_S", 60.0)
        for connection in connections:
            connection.send(PLAIN)
        assert [total(await connection.answer()) for connection in connections] == [6, 6, 6]
        server.model.free_in_s = 0.0
        third.send(PLAIN)
        assert total(await third.answer()) == 6

    over_sockets(test, tmp_path)


def test_who_leaves_while_requests_pause_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_PAUSE_S", 0.3)

    async def test(server: Running, _: Connection) -> None:
        first, second = await several(server, 2)
        server.model.rows.clear()
        server.model.free_in_s = 0.01
        for connection in (first, second):
            connection.send(PLAIN)
        await asyncio.sleep(0.05)
        first.writer.transport.abort()
        assert total(await second.answer()) == 6
        assert len(server.model.rows) == 1

    over_sockets(test, tmp_path)


def test_what_has_come_is_read_when_the_server_is_about_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "_PAUSE_S", 60.0)

    async def test(server: Running, _: Connection) -> None:
        first, second = await several(server, 2)
        server.model.free_in_s = 0.01
        first.send(PLAIN)
        await asyncio.sleep(0.05)
        server.server.config.app.gathering.read_now()
        assert total(await first.answer()) == 6
        # Also what waits for its tick's end, which finds nothing to do then.
        server.model.free_in_s = 0.0
        second.send(PLAIN)
        await asyncio.sleep(0)
        server.server.config.app.gathering.read_now()
        assert total(await second.answer()) == 6

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
        assert all(server.server.config.app.known_heads.find(head_of(one)) is not None for one in asked)

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
