"""gRPC by the frame: what stock clients never send, and what they send in odd pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server.web.http2.frames import END_HEADERS, END_STREAM, Kind, frame
from server.web.rpc.framing import deadline_s, message
from server.web.rpc.server import RpcServer
from tests.web.http2.other_side import Client
from tests.web.rpc.serving import infer_request
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel

INFER = {":path": "/inference.GRPCInferenceService/ModelInfer", "content-type": "application/grpc", "te": "trailers"}
REQUEST = message(infer_request([1, 2, 3]).SerializeToString())


def by_frames(test: Callable[[Client, Service], Any], directory: Path, **settings: Any) -> None:
    async def run() -> None:
        service = Service(directory, **settings)
        service.catalog.serve(ScriptedModel("sum", 3))
        server = RpcServer(service.app, service.catalog, connections=1)
        client = Client(asyncio.get_running_loop(), begin=server._begin)
        client.transport.frames()
        test(client, service)
        client.connection.connection_lost(None)
        assert service.app.body_budget._n_bytes == 0

    asyncio.run(run())


def opened(client: Client, stream_id: int = 1, *, flags: int = END_HEADERS, **more: str) -> None:
    headers = {**INFER, **{name.replace("_", "-"): value for name, value in more.items()}}
    block = client.encoder.encode([(":method", headers.pop("method", "POST")), *headers.items()])
    client.feed(frame(Kind.HEADERS, flags, stream_id, block))


def test_a_message_may_come_a_byte_at_a_time(tmp_path: Path) -> None:
    def test(client: Client, service: Service) -> None:
        opened(client)
        for index in range(len(REQUEST)):
            assert client.transport.frames() == []
            client.feed(frame(Kind.DATA, 0, 1, REQUEST[index : index + 1]))
        client.feed(frame(Kind.DATA, END_STREAM, 1))
        (answer,) = client.answers()
        assert answer["grpc-status"] == "0"

    by_frames(test, tmp_path)


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (b"", "3", "ended before its message was complete"),
        (REQUEST[:-1], "3", "ended before its message was complete"),
        (b"\x07" + REQUEST[1:], "3", "begins with 7"),
        (b"\x01" + REQUEST[1:], "12", "grpc-encoding 'identity' is not offered"),
        (b"\x00\xff\xff\xff\xff", "8", "(max_body_bytes)"),
    ],
)
def test_what_is_no_message_is_said(tmp_path: Path, data: bytes, code: str, says: str) -> None:
    def test(client: Client, service: Service) -> None:
        opened(client)
        client.feed(frame(Kind.DATA, END_STREAM, 1, data))
        (answer,) = client.answers()
        assert (answer["grpc-status"], says in answer["grpc-message"].replace("%25", "%")) == (code, True)
        assert (answer[":status"], service.catalog.served["sum", 3].rows) == ("200", [])

    by_frames(test, tmp_path)


def test_what_is_no_call_is_415(tmp_path: Path) -> None:
    def test(client: Client, service: Service) -> None:
        opened(client, method="GET", flags=END_HEADERS | END_STREAM)
        opened(client, 3, content_type="application/json")
        (one, other) = client.answers()
        assert one[":status"] == other[":status"] == "415"

    by_frames(test, tmp_path)


def test_a_message_that_does_not_come_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    def test(client: Client, service: Service) -> None:
        opened(client, grpc_timeout="1m")
        client.feed(frame(Kind.DATA, 0, 1, REQUEST[:9]))
        (stream,) = client.connection.streams.values()
        stream.handler._call.received_s -= 1  # type: ignore[attr-defined]
        stream.handler.tick()
        (answer,) = client.answers()
        assert answer["grpc-status"] == "4"
        assert "was not complete" in answer["grpc-message"]

    by_frames(test, tmp_path)


def test_messages_that_come_slowly_hold_no_more_than_they_may(tmp_path: Path) -> None:
    def test(client: Client, service: Service) -> None:
        for stream_id in (1, 3):
            opened(client, stream_id)
            client.feed(frame(Kind.DATA, 0, stream_id, REQUEST[:30]))
        (answer,) = client.answers()
        assert (answer["grpc-status"], "max_receiving_bytes" in answer["grpc-message"]) == ("14", True)
        client.feed(frame(Kind.DATA, END_STREAM, 1, REQUEST[30:]))
        (answer,) = client.answers()
        assert answer["grpc-status"] == "0"

    by_frames(test, tmp_path, max_receiving_bytes=50)


def test_a_deadline_is_digits_and_a_unit() -> None:
    texts = (b"2H", b"2M", b"2S", b"20m", b"20u", b"20n", None)
    assert [deadline_s(text) for text in texts] == pytest.approx([7200, 120, 2, 0.02, 2e-5, 2e-8, None])


def test_a_deadline_that_is_none_is_said(tmp_path: Path) -> None:
    def test(client: Client, service: Service) -> None:
        opened(client, grpc_timeout="soon")
        (answer,) = client.answers()
        assert (answer["grpc-status"], "grpc-timeout" in answer["grpc-message"]) == ("3", True)

    by_frames(test, tmp_path)


def test_a_call_without_a_path_broke_its_connection(tmp_path: Path) -> None:
    async def run() -> None:
        service = Service(tmp_path)
        service.catalog.serve(ScriptedModel("sum", 3))
        client = Client(asyncio.get_running_loop(), begin=RpcServer(service.app, service.catalog, connections=1)._begin)
        block = client.encoder.encode([(":method", "POST"), ("content-type", "application/grpc")])
        client.feed(frame(Kind.HEADERS, END_HEADERS, 1, block) + frame(Kind.DATA, END_STREAM, 1, REQUEST))
        opened(client, 3)
        client.feed(frame(Kind.DATA, END_STREAM, 3, REQUEST))
        await asyncio.sleep(0.01)
        assert sorted(answer["grpc-status"] for answer in client.answers()) == ["0", "12"]
        client.connection.connection_lost(None)

    asyncio.run(run())


@pytest.mark.parametrize("ends", ["refused", "reset", "lost"])
def test_a_stream_that_is_over_left_tasks_that_wait_for_ever(tmp_path: Path, ends: str) -> None:
    async def run() -> None:
        service = Service(tmp_path)
        service.catalog.serve(ScriptedModel("sum", 3))
        server = RpcServer(service.app, service.catalog, connections=1)
        client = Client(asyncio.get_running_loop(), begin=server._begin)
        opened(client, **{":path": INFER[":path"].replace("ModelInfer", "ModelStreamInfer")})
        client.feed(frame(Kind.DATA, 0, 1, REQUEST))
        await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) > 1
        if ends == "refused":
            client.feed(frame(Kind.DATA, 0, 1, b"\xff" + REQUEST))
        elif ends == "reset":
            client.feed(frame(Kind.RST_STREAM, 0, 1, bytes(4)))
        else:
            client.connection.connection_lost(None)
        async with asyncio.timeout(5):
            while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - whatever they are, they tell nobody
                await asyncio.sleep(0.001)

    asyncio.run(run())
