"""Predictions over gRPC: the same rows, answers and counters as over HTTP; deadlines, cancels, streams and limits."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from server.batching import QueueFull
from server.errors import RowwiseError
from server.protocol.messages import message_class
from server.signature import ModelSignature, TensorSignature
from server.store.errors import ModelNotReady
from tests.web.rpc.serving import Calling, infer_request, over_grpc, until
from tests.web.scripted_model import ScriptedAnswer, ScriptedModel

RESPONSE = message_class("inference.ModelInferResponse")
STREAMED = message_class("inference.ModelStreamInferResponse")
PREDICT = "/tensorflow.serving.PredictionService/Predict"


def totals(body: bytes) -> list[float]:
    return np.frombuffer(RESPONSE.FromString(body).raw_output_contents[0], np.float32).tolist()


def predict_request(*rows: list[float], **spec: Any) -> Any:
    request = message_class("tensorflow.serving.PredictRequest")()
    request.model_spec.name = spec.pop("name", "sum")
    for name, value in spec.items():
        if name == "version":
            request.model_spec.version.value = value
        else:
            setattr(request.model_spec, name, value)
    tensor = request.inputs["x"]
    tensor.dtype = 1
    tensor.tensor_shape.dim.add(size=len(rows))
    tensor.tensor_shape.dim.add(size=3)
    tensor.float_val.extend(value for row in rows for value in row)
    return request


def test_rows_come_and_answers_go(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        assert totals(await calling.infer(infer_request([1, 2, 3], [4, 5, 6], id="a"))) == [6, 15]
        answer = message_class("tensorflow.serving.PredictResponse").FromString(
            await calling.call(PREDICT, predict_request([1, 2, 3], version=3))
        )
        assert list(answer.outputs["total"].float_val) == [6]
        assert (answer.model_spec.name, answer.model_spec.version.value) == ("sum", 3)
        assert [rows.n for rows in calling.model.rows] == [2, 1]
        assert calling.model.callers == ["127.0.0.1"] * 2
        assert calling.codes() == {"200": 2.0}

    over_grpc(test, tmp_path)


def test_labels_and_versions_are_found_as_over_http(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        calling.service.catalog.serve(ScriptedModel("sum", 4), labels=("stable",))
        await calling.call(PREDICT, predict_request([1, 2, 3], version_label="stable"))
        assert len(calling.service.catalog.served["sum", 4].rows) == 1
        await calling.infer(infer_request([1, 2, 3], model_version="3"))
        assert len(calling.model.rows) == 1
        code, sentence, _ = await calling.refused(calling.call(PREDICT, predict_request([1, 2, 3], version_label="x")))
        assert (code, "'stable'" in sentence) == ("NOT_FOUND", True)

    over_grpc(test, tmp_path)


@pytest.mark.parametrize(
    ("request_", "code", "says"),
    [
        (b"\xff", "INVALID_ARGUMENT", "ends in the middle"),
        (infer_request([1, 2, 3], model="nobody"), "NOT_FOUND", "model 'nobody' is unknown"),
        (infer_request([1, 2, 3], model_version="99"), "NOT_FOUND", "no version 99"),
        (infer_request([1, 2, 3], model_version="x"), "INVALID_ARGUMENT", "version 'x' is no version number"),
        (infer_request([1, 2]), "INVALID_ARGUMENT", "input 'x': expected FP32[n, 3], got [1, 2]"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(tmp_path: Path, request_: Any, code: str, says: str) -> None:
    async def test(calling: Calling) -> None:
        got, sentence, trailing = await calling.refused(
            calling.infer(request_, metadata=(("x-request-id", "caller-1"),))
        )
        assert (got, says in sentence) == (code, True), sentence
        assert trailing["x-request-id"] == "caller-1"
        assert sum(calling.codes().values()) == 1

    over_grpc(test, tmp_path)


@pytest.mark.parametrize(
    ("error", "code", "retries"),
    [
        (
            QueueFull("the queue is full", retry_after_s=2.5),
            "RESOURCE_EXHAUSTED",
            {"retry-after": "3", "grpc-retry-pushback-ms": "3000"},
        ),
        (
            ModelNotReady("sum", 3, "it is loading"),
            "UNAVAILABLE",
            {"retry-after": "1", "grpc-retry-pushback-ms": "1000"},
        ),
    ],
)
def test_who_should_try_later_is_told_when(
    tmp_path: Path, error: RowwiseError, code: str, retries: dict[str, str]
) -> None:
    async def test(calling: Calling) -> None:
        calling.model.refusal = error
        got, sentence, trailing = await calling.refused(calling.infer(infer_request([1, 2, 3])))
        assert (got, sentence) == (code, str(error))
        assert retries.items() <= trailing.items()

    over_grpc(test, tmp_path)


def test_an_error_of_ours_is_not_told_but_where_to_look(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        calling.model.refusal = RuntimeError("secret")
        code, sentence, _ = await calling.refused(
            calling.infer(infer_request([1, 2, 3]), metadata=(("x-request-id", "look-here"),))
        )
        assert code == "INTERNAL"
        assert "look-here" in sentence
        assert "secret" not in sentence

    over_grpc(test, tmp_path)


def test_every_answer_has_a_request_id_and_says_how_it_was_batched_if_asked(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        call = calling.infer(infer_request([1, 2, 3]), metadata=(("x-request-id", "r-1"), ("x-rowwise-explain", "1")))
        await call
        trailing = dict(await call.trailing_metadata())
        assert trailing["x-request-id"] == "r-1"
        assert "rows=5" in trailing["server-timing"]
        call = calling.infer(infer_request([1, 2, 3]))
        await call
        assert len(dict(await call.trailing_metadata())["x-request-id"]) > 8

    over_grpc(test, tmp_path)


def test_the_deadline_is_the_requests_and_a_parameter_can_shorten_it(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        await calling.infer(infer_request([1, 2, 3]))
        await calling.infer(infer_request([1, 2, 3]), timeout=30)
        shorter = infer_request([1, 2, 3])
        shorter.parameters["timeout"].int64_param = 2_000_000
        await calling.infer(shorter, timeout=30)
        none, whole, short = calling.model.timeouts_s
        assert none is None
        assert whole is not None
        assert 20 < whole < 31  # gRPC rounds it up
        assert short == 2

    over_grpc(test, tmp_path)


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_who_waits_no_more_is_taken_out_of_the_queue(tmp_path: Path, how: str) -> None:
    async def test(calling: Calling) -> None:
        calling.model.holds = True
        waiting = calling.infer(infer_request([1, 2, 3]), timeout=0.3 if how == "deadline" else None)
        await until(lambda: len(calling.model.tickets) == 1)
        if how == "cancel":
            waiting.cancel()
        else:
            assert (await calling.refused(waiting))[0] == "DEADLINE_EXCEEDED"
        await until(lambda: calling.model.tickets[0].cancelled)
        assert calling.codes() == {"499" if how == "cancel" else "504": 1.0}

    over_grpc(test, tmp_path)


def test_a_deadline_that_has_passed_is_not_even_queued(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        code, _, _ = await calling.refused(calling.infer(infer_request([1, 2, 3]), timeout=0))
        assert code == "DEADLINE_EXCEEDED"
        assert calling.model.rows == []

    over_grpc(test, tmp_path)


def test_past_the_limit_the_error_names_the_setting(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        code, sentence, _ = await calling.refused(calling.infer(bytes(20_001)))
        assert (code, "20000 bytes (max_body_bytes)" in sentence) == ("RESOURCE_EXHAUSTED", True)
        # What is announced as larger is not received: the answer comes before its end.
        code, sentence, _ = await calling.refused(calling.infer(bytes(50_000_000)))
        assert (code, "20000 bytes (max_body_bytes)" in sentence) == ("RESOURCE_EXHAUSTED", True)
        assert totals(await calling.infer(infer_request([1, 2, 3]))) == [6]

    over_grpc(test, tmp_path, max_body_bytes=20_000)


def test_tensors_of_16_mib_come_and_go(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        size = (2**20,)
        signature = ModelSignature(
            inputs=(TensorSignature(name="x", dtype="float32", shape=size),),
            outputs=(TensorSignature(name="y", dtype="float32", shape=size),),
        )
        values = np.arange(4 * size[0], dtype=np.float32).reshape(4, -1)
        calling.service.catalog.serve(ScriptedModel("wide", 1, signature=signature, outputs=[values]))
        answer = RESPONSE.FromString(await calling.infer(infer_request(*values, model="wide")))
        assert answer.raw_output_contents[0] == values.tobytes()
        (rows,) = calling.service.catalog.served["wide", 1].rows
        np.testing.assert_array_equal(rows.columns[0], values)

    over_grpc(test, tmp_path)


def test_compressed_messages_are_read_and_count_as_what_they_unpack_to(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        small = infer_request([1, 2, 3], id="i" * 2_000)
        assert totals(await calling.infer(small, compression=grpc.Compression.Gzip)) == [6]
        bomb = bytes(15_000_000)
        assert len(gzip.compress(bomb)) < 20_000
        code, sentence, _ = await calling.refused(calling.infer(bomb, compression=grpc.Compression.Gzip))
        assert (code, "unpacked, is over the limit of 20000 bytes" in sentence) == ("RESOURCE_EXHAUSTED", True)

    over_grpc(test, tmp_path, max_body_bytes=20_000)


def test_a_protected_prediction_needs_the_token(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        request = infer_request([1, 2, 3])
        assert (await calling.refused(calling.infer(request)))[0] == "UNAUTHENTICATED"
        wrong = (("authorization", "Bearer wrong"),)
        assert (await calling.refused(calling.infer(request, metadata=wrong)))[0] == "UNAUTHENTICATED"
        assert totals(await calling.infer(request, metadata=(("authorization", "Bearer secret"),))) == [6]
        assert calling.codes() == {"401": 2.0, "200": 1.0}

    over_grpc(test, tmp_path, token="secret", protect_predict=True)


def stream(calling: Calling) -> Any:
    return calling.channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")()


def test_a_stream_is_answered_in_its_order_and_goes_on_after_a_mistake(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        streaming = stream(calling)
        for index in range(5):
            await streaming.write(infer_request([index, 0, 0], id=str(index)).SerializeToString())
        await streaming.write(infer_request([1, 2], id="bad").SerializeToString())
        await streaming.write(infer_request([7, 0, 0], id="last").SerializeToString())
        await streaming.done_writing()
        answers = [STREAMED.FromString(body) async for body in streaming]
        assert [answer.infer_response.id for answer in answers] == ["0", "1", "2", "3", "4", "bad", "last"]
        assert ["expected FP32" in answer.error_message for answer in answers] == [False] * 5 + [True, False]
        assert answers[-1].infer_response.raw_output_contents[0] == np.float32([7]).tobytes()
        assert calling.codes() == {"200": 6.0, "400": 1.0}

    over_grpc(test, tmp_path)


def test_requests_of_one_stream_wait_together_so_that_they_can_share_a_batch(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        calling.model.holds = True
        streaming = stream(calling)
        for index in range(3):
            await streaming.write(infer_request([index, 0, 0]).SerializeToString())
        await until(lambda: len(calling.model.held) == 3)
        for done in reversed(calling.model.held):
            done(ScriptedAnswer(outputs=[np.float32([1])]))
        for _ in range(3):
            assert STREAMED.FromString(await streaming.read()).infer_response.outputs[0].name == "total"
        await streaming.done_writing()

    over_grpc(test, tmp_path)


def test_a_stream_that_is_cancelled_takes_all_of_its_requests_back(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        calling.model.holds = True
        streaming = stream(calling)
        for _ in range(3):
            await streaming.write(infer_request([1, 2, 3]).SerializeToString())
        await until(lambda: len(calling.model.tickets) == 3)
        streaming.cancel()
        await until(lambda: all(ticket.cancelled for ticket in calling.model.tickets))
        await until(lambda: calling.codes() == {"499": 3.0})

    over_grpc(test, tmp_path)


def test_a_stream_reads_no_further_than_its_answers_are_taken(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        calling.model.holds = True
        streaming = stream(calling)
        for _ in range(80):
            await streaming.write(infer_request([1, 2, 3]).SerializeToString())
        await until(lambda: len(calling.model.tickets) == 64)
        await asyncio.sleep(0.1)
        assert len(calling.model.tickets) == 64
        streaming.cancel()

    over_grpc(test, tmp_path)
