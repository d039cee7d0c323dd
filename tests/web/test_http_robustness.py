"""Hostile, broken and slow callers over real sockets: each is refused in a sentence, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import numpy as np
import pytest

from server.web.strict_http import MAX_HEAD_BYTES, MAX_HEADERS, MAX_TARGET_BYTES
from tests.web.scripted_model import ScriptedAnswer, ScriptedModel
from tests.web.sockets import Connection, Running, over_sockets, request, total, until

HEAD = b"POST /v1/models/sum:predict HTTP/1.1\r\nHost: test\r\n"
BODY = b'{"instances": [[1, 2, 3]]}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: test\r\n\r\n"

#: What a proxy in front could read in another way, or what no client means.
AMBIGUOUS = {
    "a length beside chunks": (HEAD + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "chunks beside a length": (CHUNKED + LENGTH + b"\r\n0\r\n\r\n", 400),
    "two lengths": (HEAD + LENGTH + b"Content-Length: 3\r\n\r\n" + BODY, 400),
    "one length twice": (HEAD + LENGTH + LENGTH + b"\r\n" + BODY, 400),
    "a list of lengths": (HEAD + b"Content-Length: 26, 26\r\n\r\n" + BODY, 400),
    "a length with a sign": (HEAD + b"Content-Length: +26\r\n\r\n" + BODY, 400),
    "a negative length": (HEAD + b"Content-Length: -1\r\n\r\n" + BODY, 400),
    "a hexadecimal length": (HEAD + b"Content-Length: 0x1a\r\n\r\n" + BODY, 400),
    "a length of 23 digits": (HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n" + BODY, 400),
    "a length that is empty": (HEAD + b"Content-Length: \r\n\r\n" + BODY, 400),
    "a folded line": (HEAD + b"X-A: b\r\n c\r\n" + LENGTH + b"\r\n" + BODY, 400),
    "a folded length": (HEAD + b"Content-Length: 2\r\n 6\r\n\r\n" + BODY, 400),
    "bare line feeds": ((HEAD + LENGTH + b"\r\n").replace(b"\r\n", b"\n") + BODY, 400),
    "a bare carriage return": (HEAD + b"X-A: b\rX-B: c\r\n" + LENGTH + b"\r\n" + BODY, 400),
    "a blank before a colon": (HEAD + b"Content-Length : 26\r\n\r\n" + BODY, 400),
    "a blank before a name": (HEAD + b" Content-Length: 26\r\n\r\n" + BODY, 400),
    "a NUL in a value": (HEAD + b"X-A: a\0b\r\n" + LENGTH + b"\r\n" + BODY, 400),
    "a chunk of 2**68 bytes": (CHUNKED + b"\r\nFFFFFFFFFFFFFFFFF\r\n", 400),
    "a chunk of -1 bytes": (CHUNKED + b"\r\n-1\r\n", 400),
    "a blank before a chunk's size": (CHUNKED + b"\r\n 1a\r\n" + BODY + b"\r\n0\r\n\r\n", 400),
    "a bare line feed after a chunk's size": (CHUNKED + b"\r\n1a\n" + BODY + b"\r\n0\r\n\r\n", 400),
    "a chunk longer than it says": (CHUNKED + b"\r\n1a\r\n" + BODY + b"XX0\r\n\r\n", 400),
    "a length among trailers": (CHUNKED + b"\r\n1a\r\n" + BODY + b"\r\n0\r\nContent-Length: 5\r\n\r\n", 400),
    "chunked twice": (CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n1a\r\n" + BODY + b"\r\n0\r\n\r\n", 400),
    "chunked, chunked": (HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n1a\r\n" + BODY + b"\r\n0\r\n\r\n", 400),
    "chunked and then gzip": (HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n1a\r\n" + BODY + b"\r\n0\r\n\r\n", 400),
    "gzip and then chunked": (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n1a\r\n" + BODY + b"\r\n0\r\n\r\n", 501),
    "xchunked": (HEAD + b"Transfer-Encoding: xchunked\r\n\r\n1a\r\n" + BODY + b"\r\n0\r\n\r\n", 501),
    "identity": (HEAD + b"Transfer-Encoding: identity\r\n" + LENGTH + b"\r\n" + BODY, 400),
    "chunks in HTTP/1.0": (CHUNKED.replace(b"/1.1", b"/1.0") + b"\r\n1a\r\n" + BODY + b"\r\n0\r\n\r\n", 400),
    "no host": (HEAD.replace(b"Host: test\r\n", b"") + LENGTH + b"\r\n" + BODY, 400),
    "two hosts": (HEAD + b"Host: other\r\n" + LENGTH + b"\r\n" + BODY, 400),
    "HTTP/0.9": (b"GET /v2/health/live\r\n\r\n", 505),
    "HTTP/2.0": (b"GET /v2/health/live HTTP/2.0\r\nHost: test\r\n\r\n", 505),
    "a preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a handshake of TLS": (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + bytes(150), 400),
    "a tunnel": (b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: test\r\n\r\n", 400),
    "a method that is none": (b"BREW /v2/health/live HTTP/1.1\r\nHost: test\r\n\r\n", 400),
    "a blank in a target": (b"GET /a b HTTP/1.1\r\nHost: test\r\n\r\n", 400),
    "a target that is no URL": (b"GET http://[:: HTTP/1.1\r\nHost: test\r\n\r\n", 400),
    "too many headers": (HEAD + b"".join(b"X-%d: 1\r\n" % n for n in range(MAX_HEADERS)) + b"\r\n", 431),
    "too large a head": (HEAD + b"X-A: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n", 431),
    "a head without an end": (HEAD + b"X-A: " + b"a" * 2**20, 431),
    "too long a target": (b"GET /" + b"a" * MAX_TARGET_BYTES + b" HTTP/1.1\r\nHost: test\r\n\r\n", 414),
}


def test_what_can_be_read_in_two_ways_is_refused_once_and_nothing_after_it_is_read(tmp_path: Path) -> None:
    async def test(server: Running, _: Connection) -> None:
        for what, (data, expected) in AMBIGUOUS.items():
            connection = await server.connect()
            # What follows could be the request that was smuggled.
            connection.send(data + request(7, 7, 7))
            status, headers, body = await connection.answer()
            assert (status, headers["connection"]) == (expected, "close"), what
            assert list(json.loads(body)) == ["error"], what
            assert headers["x-request-id"], what
            assert await connection.is_closed(), what
        assert server.model.rows == []
        # Clients count these too. Those whose head was fine count as callers who left.
        codes = server.codes()
        assert sum(codes.values()) == len(AMBIGUOUS)
        assert codes["431"] == 3

    over_sockets(test, tmp_path)


def test_what_cannot_be_read_gets_the_same_answer_byte_by_byte(tmp_path: Path) -> None:
    async def test(server: Running, _: Connection) -> None:
        for what in (
            "a length beside chunks",
            "two lengths",
            "a folded line",
            "two hosts",
            "chunked twice",
            "HTTP/2.0",
        ):
            data, expected = AMBIGUOUS[what]
            connection = await server.connect()
            for byte in data[: data.index(b"\r\n\r\n") + 4]:
                connection.send(bytes([byte]))
                await asyncio.sleep(0)
            assert (await connection.answer())[0] == expected, what
            assert await connection.is_closed(), what

    over_sockets(test, tmp_path)


@pytest.mark.parametrize("before", ["hot", "cold", "both"])
def test_requests_before_one_that_cannot_be_read_get_their_answers_first(tmp_path: Path, before: str) -> None:
    async def test(server: Running, connection: Connection) -> None:
        server.model.holds = True
        asked = {"hot": [request(1, 2, 3)], "cold": [LIVE], "both": [request(1, 2, 3), LIVE]}[before]
        connection.send(b"".join(asked) + AMBIGUOUS["two lengths"][0])
        if before != "cold":
            await server.model.admitted.wait()
            server.model.held[0](ScriptedAnswer(outputs=[np.float32([6])]))
        for _ in asked:
            assert (await connection.answer())[0] == 200
        assert (await connection.answer())[0] == 400
        assert await connection.is_closed()

    over_sockets(test, tmp_path)


@pytest.mark.parametrize("before", ["nothing", "hot", "cold"])
def test_a_body_that_breaks_off_its_framing_is_refused_in_its_turn(tmp_path: Path, before: str) -> None:
    async def test(server: Running, connection: Connection) -> None:
        server.model.holds = True
        asked = {"nothing": b"", "hot": request(1, 2, 3), "cold": LIVE}[before]
        connection.send(asked + CHUNKED + b"\r\n1a\r\n" + BODY[:9])
        if before == "hot":
            await server.model.admitted.wait()
            connection.send(BODY[9:] + b"XX\r\n")
            await asyncio.sleep(0.05)
            server.model.held[0](ScriptedAnswer(outputs=[np.float32([6])]))
        else:
            connection.send(BODY[9:] + b"XX\r\n")
        if before != "nothing":
            assert (await connection.answer())[0] == 200
        assert (await connection.answer())[0] == 400
        assert await connection.is_closed()
        await until(lambda: sum(server.codes().values()) == (2 if before == "hot" else 1))

    over_sockets(test, tmp_path)


def test_a_body_in_chunks_of_one_byte_is_one_body(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY)
        connection.send(CHUNKED + b"\r\n" + chunks + b"0\r\n\r\n" + request(1, 1, 1))
        assert [total(await connection.answer()), total(await connection.answer())] == [6, 3]
        for byte in CHUNKED + b"\r\n" + chunks + b"0\r\nX-Trailer: 1\r\n\r\n":
            connection.send(bytes([byte]))
            await asyncio.sleep(0)
        assert total(await connection.answer()) == 6

    over_sockets(test, tmp_path)


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
@pytest.mark.parametrize("step", [None, 40], ids=["at once", "in pieces"])
def test_a_body_is_not_lost_when_its_request_offers_another_protocol(
    tmp_path: Path, protocol: str, step: int | None
) -> None:
    """Java's HttpClient and curl --http2 offer h2c with each first request; the body would be read as a request."""

    async def test(server: Running, connection: Connection) -> None:
        offer = f"Connection: keep-alive, Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AAMA\r\n"
        inner = request(7, 7, 7)
        smuggled = b"POST /nothing HTTP/1.1\r\nHost: test\r\n%bContent-Length: %d\r\n\r\n%b" % (
            offer.encode(),
            len(inner),
            inner,
        )
        data = request(1, 2, 3, headers=offer) + smuggled + LIVE + request(1, 1, 1)
        for start in range(0, len(data), step or len(data)):
            connection.send(data[start : start + (step or len(data))])
            await asyncio.sleep(0.001)
        assert total(await connection.answer()) == 6
        assert (await connection.answer())[0] == 404
        assert (await connection.answer())[0] == 200
        assert total(await connection.answer()) == 3
        assert [rows.columns[0].sum() for rows in server.model.rows] == [6, 3]

    over_sockets(test, tmp_path)


@pytest.mark.parametrize("length", [b"1000000", b"5"], ids=["refused unread", "read"])
def test_a_body_that_waits_for_100_continue_is_asked_for_unless_it_is_refused(tmp_path: Path, length: bytes) -> None:
    async def test(_: Running, connection: Connection) -> None:
        connection.send(HEAD + b"Expect: 100-continue\r\nContent-Length: " + length + b"\r\n\r\n")
        status, _, _ = await connection.answer()
        assert status == (413 if len(length) > 1 else 100)
        if status == 100:
            connection.send(b"hello")
            assert (await connection.answer())[0] == 400

    over_sockets(test, tmp_path, max_body_bytes=999)


def test_head_is_answered_as_get_without_a_body_and_options_with_the_methods(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        async def ask(method: str, path: str) -> tuple[int, dict[str, str]]:
            connection.send(f"{method} {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
            if method == "HEAD":
                head = (await asyncio.wait_for(connection.reader.readuntil(b"\r\n\r\n"), 60)).decode().lower()
                lines = head.split("\r\n")
                return int(lines[0].split()[1]), dict(line.split(": ", 1) for line in lines[1:] if line)
            status, headers, _ = await connection.answer()
            return status, headers

        for path in ("/v2/health/live", "/v2/health/ready", "/v1/models/sum", "/v2/models/sum", "/nothing"):
            status, headers = await ask("HEAD", path)
            expected, of_get = await ask("GET", path)
            assert (status, headers["content-length"]) == (expected, of_get["content-length"]), path
        for path, allow in {
            "/v1/models/sum:predict": "OPTIONS, POST",
            "/v2/models/sum/infer": "OPTIONS, POST",
            "/v2/health/live": "GET, HEAD, OPTIONS",
            "/v1/models/sum": "DELETE, GET, HEAD, OPTIONS, PUT",
            "/v1/models/sum/versions/3": "DELETE, GET, HEAD, OPTIONS",
            "/v2/repository/index": "OPTIONS, POST",
            "*": "DELETE, GET, HEAD, OPTIONS, POST, PUT",
        }.items():
            status, headers = await ask("OPTIONS", path)
            assert (status, headers["allow"]) == (200, allow.lower()), path
            assert not any(name.startswith("access-control") for name in headers)
            if path != "*":
                status, headers = await ask("PATCH", path)
                assert (status, headers["allow"]) == (405, allow.lower()), path
        assert (await ask("OPTIONS", "/nothing"))[0] == 404
        assert (await ask("HEAD", "/v1/models/sum:predict"))[0] == 405

    over_sockets(test, tmp_path)


def test_a_connection_without_a_request_is_closed_and_one_with_half_a_head_is_told(tmp_path: Path) -> None:
    async def test(server: Running, silent: Connection) -> None:
        half, later = await server.connect(), await server.connect()
        half.send(HEAD)
        later.send(request(1, 2, 3))
        assert total(await later.answer()) == 6
        began_s = time.monotonic()
        for byte in HEAD * 9:
            if later.reader._buffer:  # type: ignore[attr-defined]  # it has been answered
                break
            later.send(bytes([byte]))
            await asyncio.sleep(0.01)
        else:
            pytest.fail("each byte began the time anew")
        status, _, body = await later.answer()
        assert (status, b"head_timeout_s" in body) == (408, True)
        assert time.monotonic() - began_s > 0.15
        assert (await half.answer())[0] == 408
        assert await half.is_closed()
        assert await silent.is_closed()

    over_sockets(test, tmp_path, head_timeout_s=0.2)


def test_a_caller_who_reads_no_answers_is_not_read_from_and_cut_off(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        connection.writer.transport.set_write_buffer_limits(0)
        asked = request(*range(3)) * 200
        n_sent = 0
        try:
            while n_sent < 2_000:
                connection.send(asked)
                await asyncio.wait_for(connection.writer.drain(), 0.5)
                n_sent += 1
        except (TimeoutError, ConnectionError):
            pass
        assert n_sent < 1_000, "everything was read"
        # What the kernel holds of both directions, and some.
        assert len(server.model.rows) < 200_000
        await until(lambda: not server.server.server_state.connections)

    over_sockets(test, tmp_path, write_timeout_s=0.5)


def test_the_rest_of_a_body_that_was_answered_early_does_not_hold_its_connection_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.web.strict_http._REST_S", 0.2)

    async def test(server: Running, connection: Connection) -> None:
        kept = await server.connect()
        for one, rest in ((connection, b"x"), (kept, b"x" * 100)):
            one.send(b"POST /nothing HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\n")
            assert (await one.answer())[0] == 404
            one.send(rest)
        assert await connection.is_closed()
        kept.send(request(1, 2, 3))
        assert total(await kept.answer()) == 6

    over_sockets(test, tmp_path)


def test_a_request_that_begins_while_another_is_answered_is_no_rest_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.web.strict_http._REST_S", 0.05)

    async def test(_: Running, connection: Connection) -> None:
        for asked in (request(1, 2, 3), LIVE):
            connection.send(LIVE + asked[:30])
            assert (await connection.answer())[0] == 200
            await asyncio.sleep(0.15)
            connection.send(asked[30:])
            assert (await connection.answer())[0] == 200

    over_sockets(test, tmp_path)


def test_a_model_named_like_a_probe_is_no_probe(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        front = server.front
        assert front.probe(LIVE) is not None
        assert front.probe(b"POST /v2/health/live HTTP/1.1\r\n") is None
        assert front.probe(b"GET /v2/health/lively HTTP/1.1\r\n") is None
        assert front.probe(b"\xff\xfe") is None
        assert isinstance(server.model, ScriptedModel)
        connection.send(LIVE)
        assert (await connection.answer())[0] == 200

    over_sockets(test, tmp_path)


def test_what_is_said_last_came_before_the_answer_to_a_request_that_waited_its_turn(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        live = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
        empty = b"POST /v1/models/sum:predict HTTP/1.1\r\nHost: a\r\n\r\n"
        connection.send(live + empty + b"{}")
        answers = [await connection.answer() for _ in range(3)]
        assert [status for status, _, _ in answers] == [200, 400, 400]
        assert ["body is empty" in body.decode() for _, _, body in answers] == [False, True, False]
        assert await connection.is_closed()

    over_sockets(test, tmp_path)


def test_a_body_that_broke_off_after_its_request_was_answered_got_a_second_answer(tmp_path: Path) -> None:
    """A proxy would have given it to whoever asked next on that connection."""

    async def test(server: Running, connection: Connection) -> None:
        connection.send(b"POST /nothing HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
        assert (await connection.answer())[0] == 404
        connection.send(b"2\r\nabXX" + request(7, 7, 7))
        assert await connection.is_closed()
        assert server.model.rows == []

    over_sockets(test, tmp_path)


def test_a_request_that_cannot_be_read_is_told_so_also_after_one_that_was_answered_early(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        connection.send(b"POST /nothing HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nab")
        assert (await connection.answer())[0] == 404
        connection.send(b"cd" + AMBIGUOUS["two lengths"][0])
        assert (await connection.answer())[0] == 400
        assert await connection.is_closed()

    over_sockets(test, tmp_path)
