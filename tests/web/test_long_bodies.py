"""Binary tensors of megabytes: received where they are read, written from where they are, and never another's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme

from server.protocol import Array
from server.settings import Settings
from server.tls import Tls
from tests.web.conformance.models import Echo
from tests.web.sockets import Connection, Running, over_sockets, request, running, total, until

#: Values of a row: two MiB.
N = 2**19


def asked(values: Array, *lines: str) -> bytes:
    """A request whose answer are its own values, in binary."""
    tensor = {"name": "x", "shape": [1, N], "datatype": "FP32", "parameters": {"binary_data_size": values.nbytes}}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    head = "".join(f"{line}\r\n" for line in ("POST /v2/models/wide/infer HTTP/1.1", "Host: test", *lines))
    head += f"Inference-Header-Content-Length: {len(text)}\r\nContent-Length: {len(text) + values.nbytes}\r\n\r\n"
    return head.encode() + text + values.tobytes()


async def values_of(connection: Connection) -> Array:
    status, headers, body = await connection.answer()
    assert status == 200, body
    return np.frombuffer(body[int(headers["inference-header-content-length"]) :], np.float32)


def vector(seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=N).astype(np.float32)


def is_filling(server: Running) -> bool:
    connections: Any = server.server.server_state.connections
    return any(connection._late_body.is_filling for connection in connections)


async def know(server: Running, connection: Connection) -> None:
    """Let the server know the head of such requests: the first one is parsed."""
    server.catalog.serve(Echo("float32", (N,), name="wide"))
    connection.send(asked(vector(0)))
    assert np.array_equal(await values_of(connection), vector(0))
    assert not is_filling(server)


async def send_slowly(server: Running, connection: Connection, data: bytes, *, step: int) -> bool:
    """Send in pieces that come apart. True: a body was received where it is read meanwhile."""
    was_filling = False
    for start in range(0, len(data), step):
        connection.send(data[start : start + step])
        await connection.writer.drain()
        await asyncio.sleep(0.002)
        was_filling = was_filling or is_filling(server)
    return was_filling


async def check_pieces(server: Running, connection: Connection) -> None:
    await know(server, connection)
    for number, step in enumerate((2**16, 100_001, 2**20)):
        # What follows the body is another request's.
        data = asked(vector(number)) + request(1, 2, 3) + asked(vector(number + 7))[:50]
        assert await send_slowly(server, connection, data, step=step)
        assert np.array_equal(await values_of(connection), vector(number))
        assert total(await connection.answer()) == 6
        connection.send(asked(vector(number + 7))[50:])
        assert np.array_equal(await values_of(connection), vector(number + 7))
    assert server.budget._n_bytes == 0


def test_a_long_body_is_read_the_same_in_any_pieces_and_what_follows_it_too(tmp_path: Path) -> None:
    over_sockets(check_pieces, tmp_path)


def test_a_long_body_is_read_the_same_over_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    with authority.cert_pem.tempfile() as ca:
        import ssl

        context = ssl.create_default_context(cafile=ca)

    async def run() -> None:
        async with running(tmp_path, tls=Tls(Settings(tls_certificate=tmp_path / "server.pem"))) as server:
            connection = Connection(*await asyncio.open_connection("127.0.0.1", server.port, ssl=context))
            await check_pieces(server, connection)
            await connection.aclose()

    from server.http_server import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def test_answers_that_are_not_taken_yet_stay_what_they_were(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        await know(server, connection)
        others = [await server.connect() for _ in range(3)]
        for number, other in enumerate(others):
            other.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a transport for both ways
            other.send(asked(vector(number)) + asked(vector(number + 10)))
        for number in range(5):
            connection.send(asked(vector(100 + number)))
            assert np.array_equal(await values_of(connection), vector(100 + number))
        for number, other in enumerate(others):
            other.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert np.array_equal(await values_of(other), vector(number))
            assert np.array_equal(await values_of(other), vector(number + 10))

    over_sockets(test, tmp_path)


def test_who_leaves_within_a_long_body_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        await know(server, connection)
        n_rows = len(server.catalog.served["wide", 3].rows)
        leaving = await server.connect()
        await send_slowly(server, leaving, asked(vector(1))[:N], step=2**17)
        assert is_filling(server)
        assert server.budget._n_bytes > 0
        await leaving.aclose()
        await until(lambda: len(server.server.server_state.connections) == 1)
        assert server.budget._n_bytes == 0
        assert len(server.catalog.served["wide", 3].rows) == n_rows

    over_sockets(test, tmp_path)


@pytest.mark.parametrize(
    ("settings", "status"), [({"default_timeout_ms": 300}, 504), ({"max_receiving_bytes": 2**20}, 503)]
)
def test_a_long_body_that_stands_still_or_is_too_much_is_given_up(
    tmp_path: Path, settings: dict[str, int], status: int
) -> None:
    async def test(server: Running, connection: Connection) -> None:
        server.catalog.serve(Echo("float32", (N,), name="wide"))
        # Over the budget nothing of that size is ever read: the head alone makes it known.
        data = asked(vector(1))
        for _ in range(2):
            one = await server.connect()
            one.send(data[: 2**17])
            await asyncio.sleep(0.01)
            one.send(data[2**17 : -1])
            got, headers, body = await one.answer()
            assert (got, headers["connection"]) == (status, "close"), body
            assert await one.is_closed()
        assert server.budget._n_bytes == 0
        connection.send(request(1, 2, 3))
        assert total(await connection.answer()) == 6

    over_sockets(test, tmp_path, **settings)


def test_the_server_holds_a_long_tensor_once_on_its_way_in_and_once_on_its_way_out(tmp_path: Path) -> None:
    import tracemalloc

    async def test(server: Running, connection: Connection) -> None:
        await know(server, connection)
        data = asked(vector(1))
        connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
        tracemalloc.start()
        try:
            for start in range(0, len(data), 2**17):
                connection.send(data[start : start + 2**17])
                await connection.writer.drain()
                await asyncio.sleep(0.002)
            await until(lambda: server.budget._n_bytes == 0)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert np.array_equal(await values_of(connection), vector(1))
        # Its body; what the client has on its way, and the loop's pieces.
        assert 1.0 <= peak / (N * 4) < 1.5

    over_sockets(test, tmp_path)
