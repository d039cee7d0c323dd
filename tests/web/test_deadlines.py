"""Deadlines that cover a request from its headers on, callers that leave, and bodies that are slow or large."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.batching import ModelUnloaded
from server.web.paths import VerbPath
from server.web.status import Reply
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedAnswer, ScriptedModel
from tests.web.test_hot_lane import Connection, Running, over_sockets, request, total, until
from tests.web.wire import Wire, pieces

HEAD = b"POST /v1/models/sum:predict HTTP/1.1\r\nHost: test\r\n"
BODY = b'{"instances": [[1, 2, 3]]}'
COLD = b"Expect: \r\n"


def slow(*, timeout_ms: int | None = None, cold: bool = False) -> bytes:
    """The headers of a request whose body does not come."""
    timeout = b"" if timeout_ms is None else b"X-Request-Timeout-Ms: %d\r\n" % timeout_ms
    return HEAD + timeout + COLD * cold + b"Content-Length: %d\r\n\r\n" % len(BODY)


@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
@pytest.mark.parametrize("n_sent", [0, 5], ids=["no body", "half a body"])
def test_the_timeout_covers_only_the_queue(tmp_path: Path, *, cold: bool, n_sent: int) -> None:
    async def test(server: Running, connection: Connection) -> None:
        began_s = time.monotonic()
        connection.send(slow(timeout_ms=50, cold=cold) + BODY[:n_sent])
        status, headers, body = await connection.answer()
        assert status == 504
        assert b"the body was not complete 0.05 s after the request's headers" in body
        assert 0.05 <= time.monotonic() - began_s < 5
        assert headers["connection"] == "close"
        assert await connection.is_closed()
        assert server.model.rows == []
        assert server.codes() == {"504": 1.0}

    over_sockets(test, tmp_path)


def test_a_body_has_the_servers_default_timeout_if_the_request_names_none(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        connection.send(slow())
        assert (await connection.answer())[0] == 504

    over_sockets(test, tmp_path, default_timeout_ms=50)


def test_what_a_body_took_to_come_is_taken_off_the_deadline(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        began_s = time.monotonic()
        connection.send(slow(timeout_ms=60_000) + BODY[:5])
        await until(lambda: server.budget._n_bytes == 5)
        was_read_s = time.monotonic()
        await asyncio.sleep(0.05)
        sent_s = time.monotonic()
        connection.send(BODY[5:])
        assert total(await connection.answer()) == 6
        answered_s = time.monotonic()
        connection.send(request(1, 2, 3))
        assert total(await connection.answer()) == 6
        assert server.model.timeouts_s == [60.0, None]
        assert sent_s - was_read_s <= server.model.spent_s[0] <= answered_s - began_s
        assert server.model.spent_s[1] <= time.monotonic() - answered_s, "each request has its own clock"

    over_sockets(test, tmp_path)


def test_answers_before_a_body_that_never_comes_are_sent_first(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        server.model.holds = True
        connection.send(request(1, 2, 3) + slow(timeout_ms=20) + BODY[:5])
        await asyncio.sleep(0.1)
        connection.send(BODY[5:])
        await until(lambda: len(server.model.held) == 1)
        server.model.held[0](ScriptedAnswer(outputs=[np.float32([6])]))
        assert total(await connection.answer()) == 6
        assert (await connection.answer())[0] == 504
        assert await connection.is_closed()
        assert len(server.model.rows) == 1

    over_sockets(test, tmp_path)


@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
def test_bodies_sent_slowly_fill_no_more_than_they_may(tmp_path: Path, *, cold: bool) -> None:
    async def test(server: Running, connection: Connection) -> None:
        second = await server.connect()
        connection.send(slow(cold=cold) + BODY[:15])
        await until(lambda: server.budget._n_bytes == 15)
        second.send(slow(cold=cold) + BODY[:15])
        status, headers, body = await second.answer()
        assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
        assert b"max_receiving_bytes" in body
        connection.send(BODY[15:])
        assert total(await connection.answer()) == 6
        assert server.budget._n_bytes == 0
        await second.aclose()

    over_sockets(test, tmp_path, max_receiving_bytes=len(BODY))


@pytest.mark.parametrize("cold", [False, True], ids=["hot", "cold"])
def test_what_a_caller_sent_who_leaves_is_let_go(tmp_path: Path, *, cold: bool) -> None:
    async def test(server: Running, connection: Connection) -> None:
        second = await server.connect()
        second.send(slow(cold=cold) + BODY[:15])
        await until(lambda: server.budget._n_bytes == 15)
        second.writer.transport.abort()
        await until(lambda: server.budget._n_bytes == 0)
        connection.send(request(1, 2, 3))
        assert total(await connection.answer()) == 6

    over_sockets(test, tmp_path)


Leaving = Callable[[Connection], None]


def abort(connection: Connection) -> None:
    connection.writer.transport.abort()


def half_close(connection: Connection) -> None:
    connection.writer.write_eof()


@pytest.mark.parametrize("leave", [abort, half_close])
@pytest.mark.parametrize(
    "sent",
    [
        request(1, 0, 0) * 3,
        request(1, 0, 0, headers="Expect: \r\n"),
        request(1, 0, 0) + request(1, 0, 0, version="1.0"),
    ],
    ids=["pipelined", "cold", "cold after hot"],
)
def test_disconnects_go_unnoticed(tmp_path: Path, leave: Leaving, sent: bytes) -> None:
    async def test(server: Running, connection: Connection) -> None:
        server.model.holds = True
        leaving = await server.connect()
        leaving.send(sent)
        n_started = 3 if sent.count(b"Expect") + sent.count(b"HTTP/1.0") == 0 else 1
        await until(lambda: len(server.model.tickets) == n_started)
        leave(leaving)
        await until(lambda: all(ticket.cancelled for ticket in server.model.tickets))
        await until(lambda: sum(server.codes().values()) == n_started)
        assert server.codes() == {"499": float(n_started)}
        assert len(server.model.rows) == n_started
        abort(leaving)

    over_sockets(test, tmp_path)


def large(n_rows: int) -> bytes:
    return json.dumps({"instances": [[1, 2, 3]] * n_rows}).encode()


def test_a_large_body_is_read_beside_the_event_loop_and_answered_as_a_small_one(
    service: Service, model: ScriptedModel
) -> None:
    answer = service.predict(large(9_000) + b" " * 300_000)
    assert answer.json()["predictions"] == [6.0] * 9_000
    assert service.predict(b'{"instances": [' + b" " * 300_000).status_code == 400
    assert service.predict(large(30_000)).status_code == 413
    assert service.counted("rowwise_requests_total", model="sum", version="3", entry="predict", code="413") == 1
    assert len(model.rows) == 1


def test_a_caller_who_leaves_while_a_large_body_is_read_is_not_executed(service: Service, model: ScriptedModel) -> None:
    async def scenario() -> Wire:
        wire = Wire(service, "POST", "/v1/models/sum:predict")
        wire.put(b'{"instances": [' + b"[1, 2, 3], " * 60_000 + b"[1, 2, 3]]}")
        wire.leave()
        await asyncio.wait_for(wire.run(), 20)
        return wire

    service.app.predictor._max_instances = 1_000_000
    wire = asyncio.run(scenario())
    assert wire.sent == [] or model.rows, "nobody was answered, so nobody may have been executed"
    assert bool(wire.sent) == bool(model.rows)


class UnloadedMeanwhile(ScriptedModel):
    """A version that is unloaded while a body for it is decoded; ``successor`` has taken its place by then."""

    successor: Callable[[], object]

    def predict(self, *args: Any, **options: Any) -> Any:
        self.successor()
        raise ModelUnloaded("model 'sum' version 4 is being unloaded")


def test_a_request_whose_version_is_unloaded_while_its_body_is_read_is_answered_by_the_next_one(
    service: Service, model: ScriptedModel
) -> None:
    leaving = service.catalog.serve(UnloadedMeanwhile("sum", 4))
    leaving.successor = lambda: service.catalog.serve(model)
    answer = service.predict(large(2) + b" " * 300_000)
    assert (answer.status_code, answer.json()) == (200, {"predictions": [6.0, 6.0]})
    assert service.counted("rowwise_requests_total", model="sum", version="3", entry="predict", code="200") == 1

    # Where nothing takes its place, the caller is told in the end.
    leaving.successor = lambda: None
    service.catalog.serve(leaving)
    assert service.predict(large(2) + b" " * 300_000).status_code == 503


def test_callers_are_told_apart_by_where_they_come_from(service: Service, model: ScriptedModel) -> None:
    service.predict(BODY, client=("203.0.113.7", 1))
    service.predict(BODY, client=("203.0.113.7", 2))
    service.predict(BODY, client=("203.0.113.8", 1))
    assert model.callers == ["203.0.113.7", "203.0.113.7", "203.0.113.8"]


def test_a_chunked_body_that_does_not_end_is_given_up(service: Service, model: ScriptedModel) -> None:
    async def scenario() -> Wire:
        wire = Wire(service, "POST", "/v1/models/sum:predict", [(b"x-request-timeout-ms", b"50")])
        wire.put(BODY, more=True)
        await asyncio.wait_for(wire.run(), 5)
        return wire

    assert asyncio.run(scenario()).status == 504
    assert model.rows == []
    assert service.request("POST", "/v1/models/sum:predict", content=pieces(BODY)).status_code == 200


def test_a_request_that_a_busy_loop_reads_too_late_is_refused_before_it_is_decoded(
    service: Service, model: ScriptedModel
) -> None:
    replies: list[Reply] = []
    for passed_s in (30.0, 0.0):
        service.app.predictor.start(
            VerbPath(model="sum", version=None, label=None, verb="predict"),
            BODY,
            timeout_s=20.0,
            explain=False,
            request_id="late",
            on_reply=replies.append,
            received_s=time.monotonic() - passed_s,
            caller=None,
        )
    assert [reply.status for reply in replies] == [504, 200]
    assert b"20 s after the request came, before it was read" in replies[0].body
    assert len(model.rows) == 1
