"""A worker's forwarding to the engine's application: both are real uvicorns here, the engine's on a Unix socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from pydantic import SecretStr

from server.request_counts import RequestCounts, WorkerMetrics
from server.settings import Settings
from server.tally import Tally
from server.web.forwarding import Forwarder, FromWorkers
from server.web.front import IS_PREDICTION, REQUEST_ID
from server.web.worker_app import create_worker_app
from tests.web.scripted import LOCAL, Service
from tests.web.scripted_model import ScriptedModel


@dataclass
class Link:
    """A worker's end of the link that knows no model, so that everything is passed on."""

    missing: str | None = None
    known: dict[str, ScriptedModel] = field(default_factory=dict)

    @property
    def catalog(self) -> Any:
        return self

    def serves(self, model: str, *, version: str | None, label: str | None) -> bool:
        return model in self.known

    def resolve(self, name: str, version: int | None = None) -> ScriptedModel:
        return self.known[name]


class Pair:
    """A worker over an engine's application; ``request`` asks the worker."""

    def __init__(self, path: Path, service: Service) -> None:
        self.socket = path
        self.service = service
        self.link = Link()
        self.tally = Tally()
        self.counts = RequestCounts(self.tally)
        self.front, self.health = create_worker_app(
            self.link, Settings(), WorkerMetrics(self.tally), engine_socket=path
        )

    async def request(
        self, method: str, path: str, *, client: tuple[str, int] = LOCAL, **options: Any
    ) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.front, client=client)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.request(method, path, **options)

    def counted(self) -> dict[str, float]:
        (family,) = self.counts.collect()
        return {sample.labels["code"]: sample.value for sample in family.samples}


@asynccontextmanager
async def served(app: Any, path: Path) -> AsyncIterator[uvicorn.Server]:
    server = uvicorn.Server(uvicorn.Config(app, uds=str(path), lifespan="off", log_config=None))
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn sets no event
        await asyncio.sleep(0.005)
    try:
        yield server
    finally:
        server.should_exit = True
        await serving


def run(tmp_path: Path, service: Service, test: Callable[[Pair], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        pair = Pair(tmp_path / "http", service)
        async with served(FromWorkers(service.app), pair.socket):
            await test(pair)

    asyncio.run(all_of_it())


def test_everything_but_predictions_is_answered_as_by_the_engine_itself(tmp_path: Path, service: Service) -> None:
    async def test(pair: Pair) -> None:
        for method, path in (
            ("GET", "/v1/models/sum"),
            ("GET", "/V1/MODELS/sum/METADATA"),
            ("GET", "/v1/models/sum/versions/3/status"),
            ("GET", "/v2/health/ready"),
            ("GET", "/v1/models/unknown?a=b%20c"),
            ("GET", "/nothing/%C3%A9%20%22"),
            ("PATCH", "/v1/models/sum"),
            ("DELETE", "/v1/models/other"),
            ("POST", "/v1/models/unknown:predict"),
            ("POST", "/v1/models/a%2Fb:predict"),
        ):
            got = await pair.request(method, path, json={"instances": [[1, 2, 3]]})
            expected = await asyncio.to_thread(service.request, method, path, json={"instances": [[1, 2, 3]]})
            assert (got.status_code, got.content) == (expected.status_code, expected.content), path
            assert got.headers["x-request-id"]
            assert got.headers.get("allow") == expected.headers.get("allow")

    run(tmp_path, service, test)


def test_the_engine_counts_the_lines_that_a_worker_could_not_put_into_the_audit_log(tmp_path: Path) -> None:
    settings = Settings(token=SecretStr("secret"), protect_predict=True, audit_log=Path("/dev/full"))
    metrics = WorkerMetrics(Tally(tmp_path / "worker"))
    link = Link(known={"sum": ScriptedModel("sum", 3)})
    front, _ = create_worker_app(link, settings, metrics, engine_socket=tmp_path / "http")
    engine = RequestCounts(others=lambda: [tmp_path / "worker"])

    async def refused() -> int:
        transport = httpx.ASGITransport(app=front, client=LOCAL)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return (await http.post("/v1/models/sum:predict", json={"instances": [1]})).status_code

    for n_refused in (1, 2):
        assert asyncio.run(refused()) == 401
        assert engine.n_audit_failures() == n_refused
    front.gate.audit.close()


def test_a_prediction_of_what_serves_is_answered_by_the_worker(tmp_path: Path, service: Service) -> None:
    async def test(pair: Pair) -> None:
        pair.link.known["sum"] = ScriptedModel("sum", 3)
        answer = await pair.request("POST", "/v1/models/sum:predict", json={"instances": [[1, 2, 3]]})
        assert answer.json() == {"predictions": [6.0]}
        assert pair.counted() == {"200": 1}
        assert service.catalog.served["sum", 3].rows == []

    run(tmp_path, service, test)


@pytest.mark.parametrize(
    ("client", "headers", "status"),
    [
        (LOCAL, {}, 204),
        (("203.0.113.7", 4), {}, 403),
        # Whoever says that he is somebody else is not believed, by any spelling.
        (("203.0.113.7", 4), {"X-Rowwise-Peer": "127.0.0.1 5"}, 403),
        (("203.0.113.7", 4), {"x-rowwise-peer": "127.0.0.1 5", "X-ROWWISE-PEER": "127.0.0.1 6"}, 403),
        (LOCAL, {"Origin": "http://evil.example"}, 403),
        (LOCAL, {"X-Forwarded-For": "127.0.0.1"}, 403),
    ],
)
def test_who_may_manage_is_decided_by_the_callers_own_address(
    tmp_path: Path, service: Service, client: tuple[str, int], headers: dict[str, str], status: int
) -> None:
    async def test(pair: Pair) -> None:
        answer = await pair.request("DELETE", "/v1/models/sum", client=client, headers=headers)
        assert answer.status_code == status, answer.text

    run(tmp_path, service, test)


@pytest.mark.parametrize("headers", [[], [(b"x-rowwise-peer", b"nonsense")], [(b"x-rowwise-peer", b"127.0.0.1 1")] * 2])
def test_a_connection_that_no_worker_made_is_nobodys(headers: list[tuple[bytes, bytes]]) -> None:
    seen: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope)

    asyncio.run(FromWorkers(app)({"type": "http", "headers": headers}, None, None))  # type: ignore[arg-type]
    assert seen[0]["client"] is None
    assert seen[0]["headers"] == []


def test_an_upload_streams_through_and_its_request_id_is_the_workers(tmp_path: Path, service: Service) -> None:
    async def test(pair: Pair) -> None:
        data = bytes(range(256)) * 4_096
        answer = await pair.request(
            "PUT",
            "/v1/models/new",
            files={"archive": ("m.tar.gz", data)},
            headers={"X-Request-Id": "mine"},
        )
        assert answer.status_code == 202, answer.text
        assert pair.service.catalog.uploads == [data]
        assert answer.headers.get_list("x-request-id") == ["mine"]

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b" " * 10
            yield b'{"import_path": "models.digits:predict"}'

        chunked = await pair.request("PUT", "/v1/models/new", content=chunks())
        assert chunked.status_code == 202, chunked.text

    run(tmp_path, Service(service.upload_dir, import_packages=("models",)), test)


class Exchange:
    """One raw ASGI exchange with a forwarder."""

    def __init__(
        self,
        path: Path,
        tally: Tally,
        headers: list[tuple[bytes, bytes]],
        *,
        receive: Callable[[], Awaitable[dict[str, Any]]] | None = None,
    ) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[Any] = []
        forwarder = Forwarder(path, missing=lambda: None, metrics=WorkerMetrics(tally))
        scope = {
            "type": "http",
            "method": "PUT",
            "path": "/v1/models/big",
            "query_string": b"",
            "headers": headers,
            "client": LOCAL,
            REQUEST_ID: "id",
            IS_PREDICTION: False,
        }
        self.task = asyncio.create_task(forwarder(scope, receive or self.incoming.get, self._send))

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


def test_an_upload_that_is_too_large_is_refused_before_it_is_sent(tmp_path: Path, service: Service) -> None:
    async def test(pair: Pair) -> None:
        headers = [(b"content-type", b"multipart/form-data; boundary=x"), (b"content-length", b"%d" % 2**45)]
        exchange = Exchange(pair.socket, pair.tally, headers)
        async with asyncio.timeout(5):
            await exchange.task
        assert exchange.sent[0]["status"] == 413

    run(tmp_path, service, test)


def test_an_answer_that_came_before_the_body_was_sent_is_passed_on(tmp_path: Path) -> None:
    """The engine has answered and closed when the body is sent to it, and nobody has read the answer yet."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "http"))
        listening.listen()
        closed = threading.Event()

        def answer_and_close() -> None:
            connection, _ = listening.accept()
            with connection:
                while b"\r\n\r\n" not in connection.recv(2**16):
                    pass
                connection.sendall(b"HTTP/1.1 409 Conflict\r\ncontent-length: 3\r\n\r\nno!")
            closed.set()

        async def test() -> None:
            async def receive() -> dict[str, Any]:
                if closed.is_set():
                    await asyncio.Event().wait()
                assert closed.wait(5)  # and the loop, which would read the answer, stands still
                return {"type": "http.request", "body": b"0123456789", "more_body": False}

            exchange = Exchange(tmp_path / "http", Tally(), [(b"content-length", b"10")], receive=receive)
            async with asyncio.timeout(5):
                await exchange.task
            assert exchange.sent[0]["status"] == 409
            assert b"".join(message["body"] for message in exchange.sent[1:]) == b"no!"

        engine = threading.Thread(target=answer_and_close)
        engine.start()
        asyncio.run(test())
        engine.join()


def test_a_caller_that_leaves_in_the_middle_leaves_the_engine_too(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def app(scope: Any, receive: Any, _send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    async def test() -> None:
        async with served(app, tmp_path / "http"):
            exchange = Exchange(tmp_path / "http", Tally(), [(b"content-length", b"10")])
            exchange.incoming.put_nowait({"type": "http.request", "body": b"12345", "more_body": True})
            await asyncio.sleep(0.05)
            exchange.incoming.put_nowait({"type": "http.disconnect"})
            async with asyncio.timeout(5):
                await exchange.task
                await left.wait()
            assert [message["status"] for message in exchange.sent] == [499]

    asyncio.run(test())


def test_without_an_engine_everything_is_503_with_the_reason_and_predictions_are_counted(
    tmp_path: Path, service: Service
) -> None:
    async def test() -> None:
        pair = Pair(tmp_path / "nobody", service)
        pair.link.missing = "the engine process ended and is being started again"
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/models/sum:predict"), ("GET", "/v2/health/ready")):
            answer = await pair.request(method, path)
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) >= 1
            assert pair.link.missing in answer.json()["error"]
        assert (await pair.request("GET", "/v2/health/live")).status_code == 200
        assert pair.counted() == {"503": 1}

    asyncio.run(test())


def test_an_engine_that_dies_before_it_answers_makes_a_503_and_after_that_a_broken_connection(tmp_path: Path) -> None:
    async def test() -> None:
        async def dying(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"later: 1" in head:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")
                await writer.drain()
            writer.close()

        async with await asyncio.start_unix_server(dying, tmp_path / "http"):
            exchange = Exchange(tmp_path / "http", Tally(), [])
            await exchange.task
            assert exchange.sent[0]["status"] == 503
            exchange = Exchange(tmp_path / "http", Tally(), [(b"later", b"1")])
            with pytest.raises(ConnectionError, match="cut short"):
                await exchange.task

    asyncio.run(test())


def test_a_worker_that_stops_says_so_to_probes(tmp_path: Path, service: Service) -> None:
    async def test(pair: Pair) -> None:
        assert (await pair.request("GET", "/v2/health/ready")).status_code == 200
        pair.health.begin_drain()
        answer = await pair.request("GET", "/v2/health/ready")
        assert answer.status_code == 503
        assert answer.json()["reasons"] == ["the server is stopping"]

    run(tmp_path, service, test)
