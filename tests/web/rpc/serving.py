"""The gRPC server over a scripted catalog, and a caller of it that is stock gRPC."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np

from server.http_server import new_event_loop
from server.protocol.messages import message_class
from server.web.rpc.server import RpcServer
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel

__all__ = ["Calling", "infer_request", "over_grpc", "until"]


class Calling:
    """A running server: its parts, and a channel to it."""

    def __init__(self, service: Service, server: RpcServer, port: int) -> None:
        self.service = service
        self.server = server
        self.address = f"127.0.0.1:{port}"
        self.model: ScriptedModel = service.catalog.served["sum", 3]
        self.channel = grpc.aio.insecure_channel(self.address, options=[("grpc.max_receive_message_length", -1)])

    def call(self, path: str, body: Any = b"", **options: Any) -> Any:
        """Make a call of one message; ``body`` is bytes or a message."""
        ask = self.channel.unary_unary(path)
        return ask(body if isinstance(body, bytes) else body.SerializeToString(), **options)

    def infer(self, request: Any, **options: Any) -> Any:
        """Call ModelInfer."""
        return self.call("/inference.GRPCInferenceService/ModelInfer", request, **options)

    async def answer(self, service_method: str, request: str, response: str, **fields: Any) -> Any:
        """Call a method with a message of these fields and return its answer's message."""
        body = await self.call(f"/{service_method}", message_class(request)(**fields))
        return message_class(response).FromString(body)

    async def refused(self, calling: Any) -> tuple[str, str, dict[str, Any]]:
        """Return code, sentence and trailing metadata of a call that must fail."""
        try:
            await calling
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or "", dict(error.trailing_metadata() or ())
        raise AssertionError("the call succeeded")

    def codes(self) -> dict[str, float]:
        """Requests that were counted, by status."""
        (family,) = self.service.metrics.requests.collect()
        found: dict[str, float] = {}
        for sample in family.samples:
            found[sample.labels["code"]] = found.get(sample.labels["code"], 0) + sample.value
        return found


def over_grpc(test: Callable[[Calling], Awaitable[None]], directory: Path, **settings: Any) -> None:
    """Run a test against a server on a free port."""

    async def run() -> None:
        uploads = directory / "uploads"
        uploads.mkdir()
        service = Service(uploads, **settings)
        service.catalog.serve(ScriptedModel("sum", 3))
        server = RpcServer(service.app, service.catalog, connections=16)
        listener = socket.create_server(("127.0.0.1", 0))
        await server.start(listener)
        calling = Calling(service, server, listener.getsockname()[1])
        try:
            async with asyncio.timeout(60):
                await test(calling)
        finally:
            await calling.channel.close()
            await server.stop(0.0)

    # On the loop that the server runs on.
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def infer_request(*rows: Any, model: str = "sum", **fields: Any) -> Any:
    """A ModelInferRequest of rows of numbers."""
    values = np.float32(rows)
    request = message_class("inference.ModelInferRequest")(model_name=model, **fields)
    request.inputs.add(name="x", datatype="FP32", shape=values.shape)
    request.raw_input_contents.append(values.tobytes())
    return request


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is about to happen."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - whatever it is, it tells nobody
            await asyncio.sleep(0.005)
