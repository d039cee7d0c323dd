"""The hot lane over real sockets: one order of answers, whatever way each request goes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from server.rights import add_token, revoke_token
from tests.web.rights import entry, tokens
from tests.web.scripted_model import ScriptedAnswer
from tests.web.sockets import Connection, Running, over_sockets, request, total, until


def test_one_connection_carries_many_requests(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        for number in range(5):
            connection.send(request(number, 1, 1))
            assert total(await connection.answer()) == number + 2

    over_sockets(test, tmp_path)


def test_a_request_that_comes_byte_by_byte_is_one_request(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        for byte in request(1, 2, 3):
            connection.send(bytes([byte]))
            await asyncio.sleep(0)
        assert total(await connection.answer()) == 6

    over_sockets(test, tmp_path)


def test_pipelined_requests_are_answered_in_their_order(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        connection.send(b"".join(request(number, 0, 0) for number in range(200)))
        assert [total(await connection.answer()) for _ in range(200)] == list(range(200))

    over_sockets(test, tmp_path)


def test_an_answer_waits_for_those_before_it(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        server.model.holds = True
        connection.send(request(1, 0, 0) + request(2, 0, 0))
        await until(lambda: len(server.model.held) == 2)
        first, second = server.model.held
        second(ScriptedAnswer(outputs=[np.float32([2])]))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(connection.reader.read(1), 0.05)
        first(ScriptedAnswer(outputs=[np.float32([1])]))
        assert [total(await connection.answer()), total(await connection.answer())] == [1, 2]

    over_sockets(test, tmp_path)


def test_hot_and_cold_requests_of_one_connection_keep_their_order(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        server.model.holds = True
        live = b"GET /v2/health/live HTTP/1.1\r\nHost: test\r\n\r\n"
        connection.send(request(1, 0, 0) + live + request(2, 0, 0) + live)
        await server.model.admitted.wait()
        server.model.holds = False
        server.model.held[0](ScriptedAnswer(outputs=[np.float32([1])]))
        assert total(await connection.answer()) == 1
        assert b"live" in (await connection.answer())[2]
        assert total(await connection.answer()) == 2
        assert b"live" in (await connection.answer())[2]
        connection.send(request(3, 0, 0))
        assert total(await connection.answer()) == 3

    over_sockets(test, tmp_path)


@pytest.mark.parametrize(
    "unusual",
    [
        request(1, 2, 3, headers="Expect: 100-continue\r\n"),
        request(1, 2, 3, path="/v1/models/sum:predict?x=1"),
        request(1, 2, 3, path="/V1/Models/sum:PREDICT"),
        (
            b"POST /v1/models/sum:predict HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
            b'9\r\n{"instanc\r\n11\r\nes": [[1, 2, 3]]}\r\n0\r\n\r\n'
        ),
    ],
    ids=["expect", "query", "capitals", "chunked"],
)
def test_an_unusual_prediction_gets_the_same_answer(tmp_path: Path, unusual: bytes) -> None:
    async def test(_: Running, connection: Connection) -> None:
        connection.send(request(1, 2, 3))
        status, headers, body = await connection.answer()
        connection.send(unusual)
        again = await connection.answer()
        if again[0] == 100:
            again = await connection.answer()
        assert (again[0], again[2]) == (status, body)
        assert again[1].keys() == headers.keys()

    over_sockets(test, tmp_path)


def test_a_body_over_the_limit_is_refused_before_it_comes(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        connection.send(b"POST /v1/models/sum:predict HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n")
        assert (await connection.answer())[0] == 413

    over_sockets(test, tmp_path, max_body_bytes=999)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(1, 2), 400),
        (request(1, 2, 3, path="/v1/models/nobody:predict"), 404),
        (request(1, 2, 3, headers="X-Request-Timeout-Ms: soon\r\n"), 400),
        (b"POST /v1/models/sum:predict HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n", 400),
        (
            (
                b"POST /v1/models/sum:predict HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
            400,
        ),
    ],
    ids=["shape", "model", "timeout", "empty", "two lengths"],
)
def test_a_wrong_request_gets_its_code(tmp_path: Path, data: bytes, status: int) -> None:
    async def test(_: Running, connection: Connection) -> None:
        connection.send(data)
        assert (await connection.answer())[0] == status

    over_sockets(test, tmp_path)


def test_headers_reach_the_prediction_and_its_answer(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        headers = "X-Request-Id: mine\r\nX-Request-Timeout-Ms: 250\r\nX-Rowwise-Explain: 1\r\n"
        connection.send(request(1, 2, 3, headers=headers))
        _, answered, _ = await connection.answer()
        assert answered["x-request-id"] == "mine"
        assert "rows=5" in answered["server-timing"]
        assert server.model.timeouts_s == [0.25]

    over_sockets(test, tmp_path)


def test_a_caller_who_wants_the_connection_closed_gets_that(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        connection.send(request(1, 2, 3, headers="Connection: close\r\n"))
        status, headers, _ = await connection.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert await connection.is_closed()

    over_sockets(test, tmp_path)


def test_rows_of_a_caller_who_leaves_are_taken_back(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        server.model.holds = True
        connection.send(request(1, 2, 3))
        await server.model.admitted.wait()
        connection.writer.transport.abort()
        await until(lambda: server.model.tickets[0].cancelled)
        assert server.codes() == {"499": 1.0}

    over_sockets(test, tmp_path)


def test_a_connection_that_nobody_uses_is_closed(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        connection.send(request(1, 2, 3))
        assert total(await connection.answer()) == 6
        assert await connection.is_closed()

    over_sockets(test, tmp_path, keep_alive_s=0)


def test_a_connection_is_in_use_also_while_its_requests_are_none_of_the_hot_lane(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        connection.send(request(1, 2, 3))
        assert total(await connection.answer()) == 6
        (protocol,) = server.server.server_state.connections
        # The last hot answer was long ago, as it is while the engine is gone.
        protocol._idle.replied_s -= 60.0
        connection.send(b"GET /v2/health/live HTTP/1.1\r\nHost: test\r\n\r\n")
        assert (await connection.answer())[0] == 200
        protocol._idle._look()
        connection.send(request(1, 2, 3))
        assert total(await connection.answer()) == 6

    over_sockets(test, tmp_path)


def test_stopping_answers_what_is_under_way(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        server.model.holds = True
        connection.send(request(1, 2, 3))
        await server.model.admitted.wait()
        server.server.should_exit = True
        await asyncio.sleep(0.2)
        server.model.held[0](ScriptedAnswer(outputs=[np.float32([6])]))
        assert total(await connection.answer()) == 6
        assert await connection.is_closed()

    over_sockets(test, tmp_path)


@pytest.mark.parametrize("n_sent_before", [0, 20], ids=["connected", "headers begun"])
@pytest.mark.parametrize("path", ["/v1/models/sum:predict", "/v1/models/sum/versions/9:predict"], ids=["hot", "cold"])
def test_stopping_answers_a_first_request_that_is_still_coming(tmp_path: Path, n_sent_before: int, path: str) -> None:
    async def test(server: Running, connection: Connection) -> None:
        asked = request(1, 2, 3, path=path, headers="Expect: \r\n" if "versions" in path else "")
        connection.send(asked[:n_sent_before])
        await until(lambda: len(server.server.server_state.connections) == 1)
        server.server.should_exit = True
        await asyncio.sleep(0.2)  # the server looks every 0.1 s whether it should stop
        connection.send(asked[n_sent_before:])
        status, headers, _ = await connection.answer()
        assert status == (404 if "versions" in path else 200)
        assert headers["connection"] == "close"
        assert await connection.is_closed()

    over_sockets(test, tmp_path)


def test_stopping_does_not_wait_for_a_caller_who_sends_nothing(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        await until(lambda: len(server.server.server_state.connections) == 1)
        server.server.should_exit = True
        assert await connection.is_closed()

    over_sockets(test, tmp_path)


def plain(token: str, model: str = "sum") -> bytes:
    """A request whose head is remembered."""
    return request(1, 2, 3, path=f"/v1/models/{model}:predict", headers=f"Authorization: Bearer {token}\r\n")


def test_predictions_with_a_token_are_hot_and_those_without_are_refused(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        for data, status in (
            (request(1, 2, 3), 401),
            (plain("predict"), 200),
            (plain("predict"), 200),
            (plain("wrong"), 401),
            (plain("read"), 403),
            (plain("predict", "other-one"), 403),
            (request(1, 2, 3), 401),
        ):
            connection.send(data)
            assert (await connection.answer())[0] == status
        known = server.front.known_heads._heads
        assert len(known) == 1, "refused heads are not remembered"
        assert b"Bearer predict" in next(iter(known))

    over_sockets(test, tmp_path, tokens=tokens())


def test_a_head_that_was_let_in_is_forgotten_with_its_token(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    add_token(file, entry("a", "predict"))
    add_token(file, entry("b", "predict"))

    async def test(server: Running, connection: Connection) -> None:
        for _ in range(3):
            connection.send(plain("a"))
            assert total(await connection.answer()) == 6
        revoke_token(file, "a")
        server.front.gate.look()
        for name, status in (("a", 401), ("b", 200), ("a", 401)):
            connection.send(plain(name))
            assert (await connection.answer())[0] == status

    over_sockets(test, tmp_path / "uploads", tokens_file=file)


@pytest.mark.parametrize("together", [1, 2])
def test_rows_of_gathered_predictions_count_for_their_tokens_rate(tmp_path: Path, together: int) -> None:
    limited = entry("a", "predict", predict_rows_per_s=0.001, predict_rows_burst=8)
    body = b'{"instances": [[1, 2, 3], [1, 2, 3]]}'
    head = b"POST /v1/models/sum:predict HTTP/1.1\r\nHost: test\r\nX-API-Key: a\r\nContent-Length: %d\r\n\r\n"

    async def test(server: Running, connection: Connection) -> None:
        others = [connection, *[await server.connect() for _ in range(together - 1)]]
        statuses = []
        for _ in range(6 // together):
            for one in others:
                one.send(head % len(body) + body)
            statuses += [(await one.answer())[0] for one in others]
        # Of eight rows in the bucket each request takes two.
        assert statuses == [200] * 4 + [429] * 2

    over_sockets(test, tmp_path, tokens=(limited,))


def test_where_the_callers_address_decides_heads_are_not_believed(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        for _ in range(3):
            connection.send(request(1, 2, 3))
            assert total(await connection.answer()) == 6
        assert not server.front.known_heads._heads

    over_sockets(test, tmp_path, protect_predict=True, host_names=("test",))


def test_a_refusal_does_not_wait_for_the_body(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        connection.send(b"POST /v1/models/sum:predict HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\n")
        assert (await connection.answer())[0] == 401

    over_sockets(test, tmp_path, token="secret", protect_predict=True)
