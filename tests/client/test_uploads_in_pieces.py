"""Large archives: both clients send them in pieces, over the server's own routes, whatever becomes of a piece."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

import rowwise
from rowwise import _pieces
from rowwise.version_status import Stage
from server.store.records import State
from tests.web.scripted import Service

_MIB = 2**20
ARCHIVE_BYTES = 20 * _MIB + 123
PIECES = 3


class Line:
    """The way to a server. ``faults`` happen to requests of a method one after the other; None: nothing does."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.faults: dict[str, list[Callable[[httpx.Request], httpx.Response] | None]] = {}
        self.sent: list[tuple[str, str]] = []

    def handle(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.sent.append((request.method, request.headers.get("upload-offset", "")))
        faults = self.faults.get(request.method)
        fault = faults.pop(0) if faults else None
        return self.deliver(request) if fault is None else fault(request)

    def deliver(self, request: httpx.Request, content: bytes | None = None) -> httpx.Response:
        path = request.url.raw_path.decode()
        if path.endswith("/status"):
            for key, record in self.service.catalog.records.items():
                self.service.catalog.records[key] = replace(record, state=State.AVAILABLE, active=True)
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        body = request.content if content is None else content
        answer = self.service.request(request.method, path, headers=headers, content=body)
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def cut(self, request: httpx.Request) -> httpx.Response:
        """Let half of a piece come through."""
        self.deliver(request, request.content[: len(request.content) // 2])
        raise httpx.WriteError("broken pipe")

    def lose_answer(self, request: httpx.Request) -> httpx.Response:
        self.deliver(request)
        raise httpx.ReadError("connection reset")

    @staticmethod
    def refuse_connection(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    @staticmethod
    def answer(status: int) -> Callable[[httpx.Request], httpx.Response]:
        return lambda _: httpx.Response(status, json={"error": "not now"}, headers={"retry-after": "0"})

    def methods(self) -> list[str]:
        return [method for method, _ in self.sent if method != "GET"]


@pytest.fixture
def line(tmp_path: Path) -> Line:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    return Line(Service(uploads))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "model.tar.gz"
    path.write_bytes(os.urandom(ARCHIVE_BYTES))
    return path


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    asked: list[int] = []
    monkeypatch.setattr(_pieces, "_pause_s", lambda n: asked.append(n) or 0.0)
    return asked


def register(line: Line, archive: Path, on_stage: Callable[[Stage], None] | None = None, **spec: object) -> None:
    transport = httpx.MockTransport(line.handle)
    with rowwise.Client("http://localhost", progress=False, transport=transport) as client:
        assert client.register("m", archive, on_stage=on_stage, **spec).state == "AVAILABLE"


def test_a_large_archive_goes_up_in_pieces_and_is_registered_with_its_options(line: Line, archive: Path) -> None:
    stages: list[Stage] = []
    register(line, archive, stages.append, max_batch=4)
    assert line.methods() == ["POST", *["PATCH"] * PIECES, "PUT"]
    assert line.service.catalog.uploads == [archive.read_bytes()]
    ((_, spec, source),) = line.service.catalog.registered
    assert (spec.max_batch, getattr(source, "filename", "")) == (4, "model.tar.gz")
    uploads = [stage for stage in stages if stage.name == "upload"]
    assert [stage.done for stage in uploads] == [0, 8 * 1024, 16 * 1024, ARCHIVE_BYTES // 1024]
    assert {stage.total for stage in uploads} == {ARCHIVE_BYTES // 1024}


def test_whatever_becomes_of_a_piece_the_rest_follows_what_is_there(line: Line, archive: Path) -> None:
    line.faults = {
        "POST": [line.refuse_connection],
        "PATCH": [line.cut, line.lose_answer, line.answer(503), line.refuse_connection, line.answer(408), None],
        "HEAD": [line.refuse_connection, None, line.answer(502)],
        "PUT": [line.lose_answer],
    }
    register(line, archive)
    assert line.service.catalog.uploads == [archive.read_bytes()], "once"
    offsets = [int(offset) for method, offset in line.sent if method == "PATCH"]
    assert offsets[:3] == [0, 4 * _MIB, 12 * _MIB]
    assert offsets[2:5] == [12 * _MIB] * 3


def test_an_event_loop_goes_on_with_an_upload_too(line: Line, archive: Path) -> None:
    line.faults = {"PATCH": [None, line.cut]}

    class Transport(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await request.aread()
            return await asyncio.to_thread(line.handle, request)

    async def test() -> None:
        async with rowwise.AsyncClient("http://localhost", transport=Transport()) as client:
            assert (await client.register("m", archive)).state == "AVAILABLE"

    asyncio.run(test())
    assert line.service.catalog.uploads == [archive.read_bytes()]
    assert line.methods().count("HEAD") == 1


def test_an_upload_that_does_not_move_any_more_is_given_up_and_forgotten(
    line: Line, archive: Path, no_pauses: list[int]
) -> None:
    line.faults = {"PATCH": [None, *[line.refuse_connection] * 50], "HEAD": [line.refuse_connection] * 50}
    with pytest.raises(rowwise.ConnectionFailed):
        register(line, archive)
    assert no_pauses == list(range(1, 11))
    assert line.methods()[-1] == "DELETE"
    assert list((line.service.upload_dir / "partial").iterdir()) == []


@pytest.mark.parametrize("status", [400, 403, 500, 507])
def test_what_another_attempt_does_not_help_is_raised_at_once(line: Line, archive: Path, status: int) -> None:
    line.faults = {"PATCH": [line.answer(status)]}
    with pytest.raises(rowwise.ServerRefused) as caught:
        register(line, archive)
    assert caught.value.status == status
    assert line.methods() == ["POST", "PATCH", "DELETE"]


def test_a_wrong_specification_is_refused_before_any_of_the_archive_is_sent(line: Line, archive: Path) -> None:
    with pytest.raises(rowwise.InvalidRequest, match="max_batch"):
        register(line, archive, max_batch=0)
    assert line.methods() == ["POST"]


def test_a_server_that_does_not_look_at_what_an_upload_is_to_be_refuses_it_when_it_is_registered(
    line: Line, archive: Path
) -> None:
    def of_an_earlier_release(request: httpx.Request) -> httpx.Response:
        del request.headers["content-type"]
        return line.deliver(request)

    line.faults = {"POST": [of_an_earlier_release]}
    with pytest.raises(rowwise.InvalidRequest, match="max_batch"):
        register(line, archive, max_batch=0)
    assert line.methods() == ["POST", *["PATCH"] * PIECES, "PUT", "DELETE"]
    assert list((line.service.upload_dir / "partial").iterdir()) == []


def test_an_answer_that_names_no_upload_or_no_place_is_no_rowwise_servers(line: Line, archive: Path) -> None:
    line.faults = {"POST": [lambda _: httpx.Response(201, json={"upload": "../x"})]}
    with pytest.raises(rowwise.BadAnswer, match="named none"):
        register(line, archive)
    line.faults = {"PATCH": [lambda _: httpx.Response(204, headers={"upload-offset": "10" * 20})]}
    with pytest.raises(rowwise.BadAnswer, match="Upload-Offset"):
        register(line, archive)
    assert line.methods()[-1] == "DELETE"
