"""A server that somebody else listens for: its lifespan, and what is asked of it meanwhile."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from server.replica import EmbeddedServer, EngineReplica
from server.replica.present import present
from server.store import Store
from tests.log_levels import log_levels_put_back


@asynccontextmanager
async def alive(app: EmbeddedServer) -> AsyncIterator[list[dict[str, Any]]]:
    """Start it by its lifespan, give what it says, and stop it."""
    said: list[dict[str, Any]] = []
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    has_started = asyncio.Event()

    async def send(message: dict[str, Any]) -> None:
        said.append(message)
        has_started.set()

    events.put_nowait({"type": "lifespan.startup"})
    lifespan = asyncio.create_task(app({"type": "lifespan"}, events.get, send))
    await has_started.wait()
    yield said
    events.put_nowait({"type": "lifespan.shutdown"})
    await lifespan


async def ask(app: EmbeddedServer, path: str, method: str = "GET") -> tuple[int, Any]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"x-request-id", b"mine")],
        "client": ("127.0.0.1", 50_000),
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
    }
    await app(scope, receive, send)
    headers = dict(sent[0]["headers"])
    assert headers[b"x-request-id"] == b"mine"
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(body) if body.startswith(b"{") else body


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """It logs as its settings say, and so does all that is in its process."""
    with log_levels_put_back():
        yield


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    return {"store": tmp_path / "store", "jail": "off"}


def test_it_answers_between_the_two_ends_of_its_lifespan(given: dict[str, Any]) -> None:
    async def run() -> None:
        app = EmbeddedServer(given)
        assert (await ask(app, "/v2/health/ready"))[0] == 503
        async with alive(app) as said:
            assert said == [{"type": "lifespan.startup.complete"}]
            assert present.server is app
            assert app.is_here
            assert app.n_rows == 0
            app.check()
            assert await ask(app, "/v2/health/ready") == (200, {"ready": True})
            assert (await ask(app, "/v1/models"))[0] == 403, "a proxy's address is nobody's on this machine"
            assert b"rowwise_" in (await ask(app, "/metrics"))[1]
        assert said[-1] == {"type": "lifespan.shutdown.complete"}
        assert present.server is None
        assert (await ask(app, "/v2/health/ready"))[0] == 503
        with pytest.raises(RuntimeError, match="has not started, or has stopped"):
            app.check()
        Store.open(given["store"]).close()  # it was given back

    asyncio.run(run())


def test_a_token_lets_in_who_manages(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        app = EmbeddedServer({**given, "protect_predict": True})
        async with alive(app):
            assert (await ask(app, "/v1/models"))[0] == 401

    monkeypatch.setenv("ROWWISE_TOKEN", "secret")
    asyncio.run(run())


def test_a_store_that_is_in_use_is_said_by_the_lifespan(given: dict[str, Any]) -> None:
    async def run() -> None:
        app = EmbeddedServer(given)
        async with alive(app) as said:
            assert said[0]["type"] == "lifespan.startup.failed"
            assert said[0]["message"].startswith("StoreLocked: ")
        assert present.server is None

    with Store.open(given["store"]):
        asyncio.run(run())


def test_it_is_sent_as_what_it_was_made_of(given: dict[str, Any]) -> None:
    sent = pickle.loads(pickle.dumps(EmbeddedServer(given, ready_timeout_s=7.0)))
    assert (sent._given, sent._ready_timeout_s) == (given, 7.0)


def test_ray_is_told_of_rows_and_of_health(given: dict[str, Any]) -> None:
    class App:
        n_rows = 7

        def check(self) -> None:
            raise RuntimeError("it has stopped")

    replica = EngineReplica()
    replica.app = App()  # type: ignore[assignment]
    assert replica.record_autoscaling_stats() == {"rowwise_rows": 7.0}
    with pytest.raises(RuntimeError, match="it has stopped"):
        replica.check_health()
