"""Predictions over gRPC: the same predictor, queue and counters as over HTTP, asked by a message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace

from server.errors import RowwiseError
from server.protocol import WireFormat
from server.protocol.messages import message_class
from server.protocol.oip_proto import InferCall
from server.protocol.proto_wire import head
from server.protocol.tfs_proto import PredictMessage
from server.web.front import Front
from server.web.paths import VerbPath
from server.web.rpc.call import Call, Ending
from server.web.rpc.endings import InternalFailure, internal_sentence
from server.web.status import CLIENT_GONE, Reply

__all__ = ["Predictions", "is_late"]

#: Requests of one stream that are under way; more are not read before one of these is answered.
_MAX_UNDER_WAY = 64
#: Clients round deadlines up on their way, by up to a hundredth.
_DEADLINE_SLACK_S = 0.02

_Target = Callable[[bytes], tuple[VerbPath, WireFormat]]


class Predictions:
    """Answers ModelInfer, ModelStreamInfer and Predict."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def infer(self, call: Call, body: bytes, on_end: Ending) -> Callable[[], None]:
        """Answer ``inference.GRPCInferenceService/ModelInfer``."""
        return self._start(call, body, _infer_target, on_end)

    def predict(self, call: Call, body: bytes, on_end: Ending) -> Callable[[], None]:
        """Answer ``tensorflow.serving.PredictionService/Predict``."""
        return self._start(call, body, _predict_target, on_end)

    async def stream_infer(self, call: Call, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Answer ``inference.GRPCInferenceService/ModelStreamInfer``: in the order of the requests, while others run.

        What is wrong with one request is said in its answer, and the stream goes on.
        """
        waiting: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue()
        places = asyncio.Semaphore(_MAX_UNDER_WAY)

        async def read() -> None:
            try:
                async for body in requests:
                    await places.acquire()
                    own = replace(call, received_s=time.monotonic(), timeout_s=call.left_s(), trailing=())
                    waiting.put_nowait(asyncio.create_task(self._stream_answer(own, body)))
            finally:
                waiting.put_nowait(None)

        reading = asyncio.create_task(read())
        try:
            while (answering := await waiting.get()) is not None:
                try:
                    answer = await answering
                finally:
                    answering.cancel()
                places.release()
                yield answer
            await reading
        finally:
            reading.cancel()
            while not waiting.empty():
                left = waiting.get_nowait()
                if left is not None:
                    left.cancel()

    async def _stream_answer(self, call: Call, body: bytes) -> bytes:
        response = message_class("inference.ModelStreamInferResponse")
        ended: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def on_end(answer: bytes | None, error: Exception | None) -> None:
            if ended.done():
                return
            if answer is not None:
                ended.set_result(answer)
            elif error is not None:
                ended.set_exception(error)

        take_back = self.infer(call, body, on_end)
        try:
            answer = await ended
        except RowwiseError as error:
            sentence = str(error)
        except InternalFailure:
            sentence = internal_sentence(call.request_id)
        except asyncio.CancelledError:
            take_back()
            raise
        else:
            return head(2, len(answer)) + answer
        failed = response(error_message=sentence)
        with suppress(RowwiseError):  # it could not be read that far
            failed.infer_response.id = InferCall(body).id.decode()
        written: bytes = failed.SerializeToString()
        return written

    def _start(self, call: Call, body: bytes, target: _Target, on_end: Ending) -> Callable[[], None]:
        predictor = self._front.predictor
        try:
            path, wire = target(body)
            rate, gate = None, self._front.gate
            if gate.guards_predictions:
                # Each message is looked at: a stream may live longer than its token.
                call.model = path.model
                rate = gate.predict(call.headers.items(), call.peer, path.model)
        except RowwiseError as error:
            predictor.refused(error)
            on_end(None, error)
            return _nothing

        def on_reply(reply: Reply) -> None:
            if reply.status == 200:
                call.trailing = reply.headers
                on_end(bytes(reply.body), None)
            else:
                on_end(None, InternalFailure() if reply.error is None else reply.error)

        started = predictor.start(
            path,
            body,
            timeout_s=call.timeout_s,
            explain=call.headers.get(b"x-rowwise-explain") == b"1",
            request_id=call.request_id,
            on_reply=on_reply,
            traceparent=call.headers.get(b"traceparent"),
            received_s=call.received_s,
            caller=call.host,
            wire=wire,
            rate=rate,
        )
        return lambda: started.abandon(504 if is_late(call.timeout_s, call.received_s) else CLIENT_GONE)


def _nothing() -> None:
    """Take back what has ended."""


def _infer_target(body: bytes) -> tuple[VerbPath, WireFormat]:
    asks = InferCall(body)
    return VerbPath(asks.model, asks.version, None, "predict"), asks


def _predict_target(body: bytes) -> tuple[VerbPath, WireFormat]:
    asks = PredictMessage(body)
    return VerbPath(asks.model, asks.version, asks.label, "predict"), asks


def is_late(timeout_s: float | None, received_s: float) -> bool:
    """True if a call that was given up was so for its deadline. Who waits may see it pass a little before we do."""
    if timeout_s is None:
        return False
    return timeout_s - (time.monotonic() - received_s) < _DEADLINE_SLACK_S + timeout_s / 50
