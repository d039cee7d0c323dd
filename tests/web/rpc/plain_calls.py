"""Calls that come in one tick, each on a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from hpack import Decoder

from server.http_server import new_event_loop
from server.protocol.messages import message_class
from server.web.http2.frames import END_HEADERS, END_STREAM, Kind, frame
from server.web.http2.header_blocks import literal
from server.web.rpc.framing import message
from server.web.rpc.server import RpcServer
from tests.web.http2.other_side import Client
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedAnswer, ScriptedModel

INFER = "/inference.GRPCInferenceService/ModelInfer"
PREDICT = "/tensorflow.serving.PredictionService/Predict"
RESPONSE = message_class("inference.ModelInferResponse")


class Together:
    """A server and several callers, each on a connection of its own."""

    def __init__(self, directory: Path, n: int, settings: dict[str, Any]) -> None:
        self.service = Service(directory, **settings)
        self.model = self.service.catalog.serve(ScriptedModel("sum", 3))
        self.server = RpcServer(self.service.app, self.service.catalog, connections=n)
        loop = asyncio.get_running_loop()
        self.clients = [Client(loop, begin=self.server._begin) for _ in range(n)]
        for client in self.clients:
            client.transport.frames()
        self.next_id = 1

    def ask(self, *bodies: Any, path: str = INFER, clients: Any = None, **headers: str) -> int:
        """Send a call on each connection, all in one tick; return the streams' number."""
        stream_id, self.next_id = self.next_id, self.next_id + 2
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        for client, body in zip(clients or self.clients, bodies, strict=True):
            data = body if isinstance(body, bytes) else body.SerializeToString()
            client.feed(
                frame(Kind.HEADERS, END_HEADERS, stream_id, call_block(path, more))
                + frame(Kind.DATA, END_STREAM, stream_id, message(data))
            )
        return stream_id

    async def answers(self) -> list[tuple[bytes, dict[str, str]]]:
        """Return what each connection got since the last time: data, and the last headers."""
        await settled()
        return [_answer(client) for client in self.clients]

    def codes(self) -> dict[str, float]:
        (family,) = self.service.metrics.requests.collect()
        found: dict[str, float] = {}
        for sample in family.samples:
            found[sample.labels["code"]] = found.get(sample.labels["code"], 0) + sample.value
        return found


async def settled() -> None:
    """Wait until the loop has done what waits, however late its timers are."""
    await asyncio.sleep(0.01)
    for _ in range(10):
        await asyncio.sleep(0)


def call_block(path: str, more: Mapping[str, str] | None = None) -> bytes:
    """Return the block of a call: the same bytes each time, as no entry is added to a table."""
    headers = {":method": "POST", ":path": path, "content-type": "application/grpc", "te": "trailers", **(more or {})}
    return b"".join(literal(name.encode(), value.encode()) for name, value in headers.items())


def _answer(client: Client) -> tuple[bytes, dict[str, str]]:
    decoder = Decoder()
    data, headers = b"", dict[str, str]()
    for kind, _, _, payload in client.transport.frames():
        if kind == Kind.DATA:
            data += payload
        elif kind == Kind.HEADERS:
            headers |= dict(decoder.decode(payload))
    return data[5:], headers


def together(test: Callable[[Together], Awaitable[None]], directory: Path, *, n: int = 4, **settings: Any) -> None:
    async def run() -> None:
        many = Together(directory, n, settings)
        async with asyncio.timeout(60):
            await test(many)
        for client in many.clients:
            client.connection.connection_lost(None)
        assert many.service.app.body_budget._n_bytes == 0

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def totals(answers: list[tuple[bytes, dict[str, str]]]) -> list[float]:
    assert [headers.get("grpc-status") for _, headers in answers] == ["0"] * len(answers)
    return [
        value
        for body, _ in answers
        for value in np.frombuffer(RESPONSE.FromString(body).raw_output_contents[0], np.float32).tolist()
    ]


def held(many: Together, number: int) -> None:
    many.model.held[number](ScriptedAnswer(outputs=[np.float32([40 + number])]))
