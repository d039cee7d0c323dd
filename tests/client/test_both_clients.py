"""What clients do beside asking: futures, event loops, forks, deadlines, stages, and life without TensorFlow."""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import rowwise
from rowwise._http import Target
from rowwise.version_status import Stage


def test_the_asynchronous_client_has_the_methods_and_arguments_of_the_other() -> None:
    def methods(kind: type) -> dict[str, Any]:
        return {name: each for name, each in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}

    threads, loop = methods(rowwise.Client), methods(rowwise.AsyncClient)
    assert set(threads) - {"close", "submit", "submit_many"} == set(loop) - {"aclose"}
    for name, method in loop.items():
        assert inspect.iscoroutinefunction(method)
        if name != "aclose":
            other = inspect.signature(threads[name])
            own = inspect.signature(method)
            assert own.parameters == other.parameters
            assert own.return_annotation == other.return_annotation


def test_predictions_can_be_futures(client: rowwise.Client, server: Any) -> None:
    futures = [client.submit("double", x=float(n)) for n in range(20)]
    assert [float(future.result(20)) for future in futures] == [2.0 * n for n in range(20)]  # type: ignore[arg-type]
    assert [float(each) for each in client.submit_many("double", [1.0, 2.0]).result(20)] == [2.0, 4.0]  # type: ignore[arg-type]
    with pytest.raises(rowwise.NotFound):
        client.submit("nobody", x=1).result(20)


def test_closing_waits_for_what_runs_and_cancels_what_waits() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def slow(request: httpx.Request) -> httpx.Response:
        begun.set()
        assert may_end.wait(20)
        return httpx.Response(200, json={"models": []})

    client = rowwise.Client("http://rowwise.test", connections=1, transport=httpx.MockTransport(slow))
    running = client._threads().submit(client.models)
    waiting = client.submit("double", x=1.0)
    assert begun.wait(20)
    threading.Timer(0.1, may_end.set).start()
    client.close()
    assert running.result(0) == []
    assert waiting.cancelled()


def test_a_server_that_comes_back_is_waited_for(unused: int) -> None:
    """A restart: connections are refused for a moment."""

    def listen() -> None:
        time.sleep(0.15)
        with socket.create_server(("127.0.0.1", unused)) as listener:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"models": []}')

    thread = threading.Thread(target=listen)
    thread.start()
    with rowwise.Client(f"http://127.0.0.1:{unused}", retries=8) as client:
        assert client.models() == []
    thread.join()


def test_an_answer_that_does_not_come_is_waited_for_as_long_as_was_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began_s = time.monotonic()
        with rowwise.Client(url, timeout_s=0.2) as client, pytest.raises(rowwise.TimedOut):
            client.models()

        async def ask() -> None:
            async with rowwise.AsyncClient(url, timeout_s=0.2) as client:
                await client.models()

        with pytest.raises(rowwise.TimedOut):
            asyncio.run(ask())
        assert 0.35 < time.monotonic() - began_s < 10


def test_an_answer_that_trickles_is_not_waited_for_longer_by_an_event_loop() -> None:
    async def test() -> None:
        async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not writer.is_closing():
                writer.write(b"x")
                n_sent.append(1)
                await asyncio.sleep(0.05)
            stopped.set()

        stopped = asyncio.Event()
        n_sent: list[int] = []

        server = await asyncio.start_server(trickle, "127.0.0.1", 0)
        async with server, rowwise.AsyncClient(_url(server), timeout_s=0.3) as client:
            with pytest.raises(rowwise.TimedOut):
                await client.models()
            assert len(n_sent) < 1_000, "it would have been answered"
        await stopped.wait()

    asyncio.run(test())


def test_a_call_that_is_cancelled_closes_its_connection() -> None:
    async def test() -> None:
        gone = asyncio.Event()

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            asked.set()
            await reader.read()
            gone.set()
            writer.close()

        asked = asyncio.Event()
        server = await asyncio.start_server(hold, "127.0.0.1", 0)
        async with server, rowwise.AsyncClient(_url(server)) as client:
            call = asyncio.create_task(client.models())
            await asked.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            async with asyncio.timeout(10):
                await gone.wait()

    asyncio.run(test())


def test_a_child_of_a_fork_uses_connections_of_its_own(url: str, server: Any) -> None:
    """Both would read each other's answers from one socket."""
    with rowwise.Client(url) as client:
        assert float(client.predict("double", x=1.0)) == 2.0  # type: ignore[arg-type]
        assert float(client.submit("double", x=1.0).result(20)) == 2.0  # type: ignore[arg-type]
        child = os.fork()
        if child == 0:
            right = False
            try:
                right = all(float(client.predict("double", x=float(n))) == 2.0 * n for n in range(50))  # type: ignore[arg-type]
                right = right and float(client.submit("double", x=4.0).result(20)) == 8.0  # type: ignore[arg-type]
            finally:
                os._exit(0 if right else 1)
        mine = [float(client.predict("double", x=float(n))) for n in range(50)]  # type: ignore[arg-type]
        _, status = os.waitpid(child, 0)
        assert (os.waitstatus_to_exitcode(status), mine) == (0, [2.0 * n for n in range(50)])


def test_stages_of_a_registration_are_told(client: rowwise.Client, server: Any, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"model")
    stages: list[Stage] = []
    assert client.register("double", tmp_path, on_stage=stages.append).state == "AVAILABLE"
    names = list(dict.fromkeys(stage.name for stage in stages))
    assert names == ["pack", "upload", "vectorize", "load"]
    assert [stage for stage in stages if stage.name == "vectorize"] == [Stage(name="vectorize", done=1, total=7)]


def test_an_event_loop_registers_too(server: Any, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"model")
    stages: list[Stage] = []

    def handle(request: httpx.Request) -> httpx.Response:
        headers = {key.lower(): value for key, value in request.headers.items()}
        status, more, body = server.answer(request.method, request.url.raw_path.decode(), headers, request.content)
        return httpx.Response(status, headers=more, content=body)

    class Transport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await request.aread()
            return handle(request)

    async def register() -> rowwise.VersionStatus:
        async with rowwise.AsyncClient("http://rowwise.test", transport=Transport()) as client:
            return await client.register("double", tmp_path, on_stage=stages.append, max_batch=4)

    assert asyncio.run(register()).state == "AVAILABLE"
    assert b'"max_batch":4' in server.last_parts()["spec"][1]
    assert {"pack", "upload", "vectorize", "load"} <= {stage.name for stage in stages}


_WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = sys.modules["keras"] = None  # importing them fails
import asyncio
import rowwise
with rowwise.Client(sys.argv[1]) as client:
    assert float(client.predict("double", x=21.0)) == 42.0
async def ask():
    async with rowwise.AsyncClient(sys.argv[1]) as client:
        return await client.predict_many("double", [1.0, 2.0])
assert [float(each) for each in asyncio.run(ask())] == [2.0, 4.0]
"""


def test_where_tensorflow_is_not_installed_predictions_are_asked_for(url: str) -> None:
    subprocess.run([sys.executable, "-c", _WITHOUT_TENSORFLOW, url], check=True, timeout=120)


def test_type_checkers_are_told_that_there_are_types() -> None:
    assert (Path(rowwise.__file__).parent / "py.typed").exists()


def _url(server: asyncio.Server) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
def unused() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def test_predictions_of_a_model_that_is_unknown_in_binary_are_found_out_by_json(client: rowwise.Client) -> None:
    """The double's metadata names no shapes."""
    np.testing.assert_array_equal(client.predict("double", x=[[1.0], [2.0]]), [[2.0], [4.0]])


class Counting:
    """A server that answers every question after a moment, and counts connections: all, and those that are open."""

    def __init__(self) -> None:
        self.n_made = self.n_open = self.most_open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_made += 1
        self.n_open += 1
        self.most_open = max(self.most_open, self.n_open)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(0.01)
                writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"models": []}')
        except asyncio.IncompleteReadError:
            pass
        finally:
            self.n_open -= 1
            writer.close()


def test_connections_are_used_again_and_are_no_more_than_was_said() -> None:
    async def test() -> None:
        counting = Counting()
        server = await asyncio.start_server(counting.serve, "127.0.0.1", 0)
        async with server:
            async with rowwise.AsyncClient(_url(server), connections=3) as client:
                for _ in range(5):
                    assert await client.models() == []
                assert counting.n_made == 1
                await asyncio.gather(*(client.models() for _ in range(20)))
                assert (counting.n_made, counting.most_open) == (3, 3)
            async with asyncio.timeout(10):
                while counting.n_open:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.01)

            def ask() -> None:
                with rowwise.Client(_url(server), connections=2) as client:
                    threads = [threading.Thread(target=client.models) for _ in range(10)]
                    for thread in threads:
                        thread.start()
                    for thread in threads:
                        thread.join()

            counting.n_made = counting.most_open = 0
            await asyncio.to_thread(ask)
            assert counting.n_made == counting.most_open == 2

    asyncio.run(test())


def test_a_client_that_is_closed_says_so(client: rowwise.Client) -> None:
    client.close()
    with pytest.raises(rowwise.ConnectionFailed, match="closed"):
        client.models()


def test_a_proxy_of_the_environment_is_used_but_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "proxy.example:3128")
    monkeypatch.setenv("no_proxy", "inside.example")

    def proxy(url: str) -> object:
        return Target(url, token=None, connections=1, ca=None).options["proxy"]

    assert proxy("http://outside.example") == "http://proxy.example:3128"
    for url in ("http://127.0.0.1:8000", "http://localhost", "http://inside.example", "https://outside.example"):
        assert proxy(url) is None


def test_an_upload_whose_answer_was_lost_is_sent_again_under_its_key(server: Any, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"model")
    broken = [True]

    def handle(request: httpx.Request) -> httpx.Response:
        headers = {key.lower(): value for key, value in request.headers.items()}
        status, more, body = server.answer(request.method, request.url.raw_path.decode(), headers, request.read())
        if request.method == "PUT" and broken and broken.pop():
            raise httpx.ReadError("connection reset")
        return httpx.Response(status, headers=more, content=body)

    with rowwise.Client("http://rowwise.test", transport=httpx.MockTransport(handle)) as client:
        assert client.register("double", tmp_path).state == "AVAILABLE"
    puts = [
        (headers["idempotency-key"], body.count(b"Repr-Digest: sha-256=:"))
        for m, _, headers, body in server.requests
        if m == "PUT"
    ]
    assert len(puts) == 2
    assert puts[0] == puts[1]
    assert puts[0][1] == 1
