"""The door: ours is answered at once where it is here, and what Ray says of a lost replica is said as all else is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.middleware import Middleware
from uvicorn.config import HTTP_PROTOCOLS

from server.replica.door import Door, middlewares
from server.replica.present import present


class Embedded:
    """Answers 200 and notes what it was asked."""

    def __init__(self, *, is_here: bool = True) -> None:
        self.is_here = is_here
        self.asked: list[str] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        headers = [(b"x-request-id", b"mine"), (b"x", b"y")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ours"})


class Rays:
    """Answers as it was told."""

    def __init__(self, status: int = 200, content_type: bytes = b"text/plain", body: bytes = b"Ray's") -> None:
        self.answer = (status, content_type, body)
        self.asked: list[str] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.asked.append(scope.get("path", scope["type"]))
        status, content_type, body = self.answer
        # One is of the answer, the other of Ray's middleware, which is within the door.
        headers = [(b"content-type", content_type), (b"x-request-id", b"mine"), (b"X-Request-ID", b"mine")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def embedded() -> Iterator[Embedded]:
    present.server = Embedded()  # type: ignore[assignment]
    yield present.server  # type: ignore[misc]
    present.server = None


def ask(app: Any, path: str, *, request_id: bytes = b"") -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    given = [(b"x-request-id", request_id)] if request_id else []
    asyncio.run(app({"type": "http", "path": path, "headers": given}, receive, send))
    assert [message["type"] for message in sent[:1]] == ["http.response.start"]
    headers = [(name.lower(), value) for name, value in sent[0]["headers"]]
    assert len(dict(headers)) == len(headers) or path.startswith("/-/"), "each header once"
    return sent[0]["status"], dict(headers), b"".join(message["body"] for message in sent[1:])


def test_a_replica_answers_its_own_requests_without_ray(embedded: Embedded) -> None:
    rays = Rays()
    assert ask(Door(rays), "/v1/models/m:predict") == (200, {b"x-request-id": b"mine", b"x": b"y"}, b"ours")
    assert (embedded.asked, rays.asked) == (["/v1/models/m:predict"], [])


@pytest.mark.parametrize("path", ["/-/healthz", "/-/routes"])
def test_what_is_rays_own_goes_to_ray(embedded: Embedded, path: str) -> None:
    rays = Rays()
    assert ask(Door(rays), path)[2] == b"Ray's"
    assert (embedded.asked, rays.asked) == ([], [path])


def test_a_server_on_another_event_loop_is_reached_by_ray(embedded: Embedded) -> None:
    embedded.is_here = False
    assert ask(Door(Rays()), "/v2/health/ready")[2] == b"Ray's"
    assert embedded.asked == []


def test_a_lifespan_is_not_looked_at(embedded: Embedded) -> None:
    rays = Rays()
    asyncio.run(Door(rays)({"type": "lifespan"}, None, _ignored))  # type: ignore[arg-type]
    assert (embedded.asked, rays.asked) == ([], ["lifespan"])


async def _ignored(message: dict[str, Any]) -> None:
    pass


LOST = b"The actor died unexpectedly before finishing this task.\n\tclass_name: ServeReplica:rowwise:rowwise"


@pytest.mark.parametrize(("status", "text"), [(500, LOST), (503, b"Request dropped due to backpressure")])
def test_a_lost_replica_is_503_with_retry_after_in_json_and_the_callers_id(status: int, text: bytes) -> None:
    rays = Rays(status, b"text/plain; charset=utf-8", text)
    said, headers, body = ask(Door(rays), "/v1/models/m:predict", request_id=b"mine")
    assert (said, headers[b"retry-after"], headers[b"x-request-id"]) == (503, b"1", b"mine")
    assert headers[b"content-type"] == b"application/json"
    assert ("replica" if status == 500 else "backpressure") in json.loads(body)["error"]
    assert int(headers[b"content-length"]) == len(body)


async def _returns_without_an_answer(scope: dict[str, Any], receive: Any, send: Any) -> None:
    pass


def test_a_lost_replica_of_which_ray_says_nothing_is_503_too() -> None:
    said, headers, body = ask(Door(_returns_without_an_answer), "/v1/models/m:predict", request_id=b"mine")
    assert (said, headers[b"retry-after"], headers[b"x-request-id"]) == (503, b"1", b"mine")
    assert "replica" in json.loads(body)["error"]


@pytest.mark.parametrize("content_type", [b"text/plain", b"text/html"])
def test_an_error_of_another_application_is_left_as_it_is(content_type: bytes) -> None:
    said, headers, body = ask(Door(Rays(500, content_type, b"division by zero")), "/theirs")
    assert (said, headers[b"content-type"], body) == (500, content_type, b"division by zero")
    assert b"retry-after" not in headers


def test_our_own_errors_are_left_as_they_are() -> None:
    body = b'{"error":"a fault of ours"}'
    said, _, got = ask(Door(Rays(500, b"application/json", body)), "/v1/models/m:predict")
    assert (said, got) == (500, body)


def test_an_answer_through_ray_carries_its_id_once() -> None:
    assert ask(Door(Rays()), "/v1/models")[1] == {b"content-type": b"text/plain", b"x-request-id": b"mine"}


def test_other_answers_of_rays_are_left_as_they_are() -> None:
    assert ask(Door(Rays(404)), "/elsewhere")[::2] == (404, b"Ray's")


@pytest.fixture
def protocols() -> Iterator[dict[str, str]]:
    before = dict(HTTP_PROTOCOLS)
    yield HTTP_PROTOCOLS
    HTTP_PROTOCOLS.update(before)


def test_a_proxy_and_a_replica_of_ours_have_the_door_and_the_replica_the_lane(
    embedded: Embedded, protocols: dict[str, str]
) -> None:
    before = dict(protocols)
    for is_replica in (False, True):
        assert protocols == before
        (middleware,) = middlewares(is_replica=is_replica)
        assert isinstance(middleware, Middleware)
        assert middleware.cls is Door
    assert protocols == {**before, "auto": "server.replica.lane:connection"}


def test_a_replica_of_another_application_is_left_alone(protocols: dict[str, str]) -> None:
    before = dict(protocols)
    assert middlewares(is_replica=True) == []
    assert protocols == before
