"""Plain calls of one tick are read, admitted and answered together, and nobody can tell."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.batching import QueueFull
from server.protocol.messages import message_class
from server.rights import add_token, revoke_token
from server.web.http2.frames import END_STREAM, Kind
from tests.protocol.asked import EVERY_DTYPE, one_to_one, values_of
from tests.protocol.test_oip_proto import message as infer_message
from tests.protocol.test_tfs_proto import message as predict_message
from tests.protocol.test_tfs_proto import tensor
from tests.web.rights import entry
from tests.web.rpc.plain_calls import INFER, PREDICT, RESPONSE, Together, settled, together, totals
from tests.web.rpc.serving import Calling, infer_request, over_grpc
from tests.web.scripted_model import ScriptedModel


def test_calls_that_come_together_are_one_array_and_each_gets_its_own_answer(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        for start in (0, 10):
            many.model.rows.clear()
            many.ask(*[infer_request([start + k, 2, 3]) for k in range(4)])
            answers = await many.answers()
            assert totals(answers) == [start + k + 5 for k in range(4)]
            assert len({headers["x-request-id"] for _, headers in answers}) == 4
            assert len({id(rows.columns[0].base) for rows in many.model.rows}) == 1, "their rows lie in one array"
        assert many.model.callers == ["127.0.0.1"] * 8
        assert many.codes() == {"200": 8.0}

    together(test, tmp_path)


@pytest.mark.parametrize("dtype", EVERY_DTYPE)
@pytest.mark.parametrize("path", [INFER, PREDICT])
def test_an_answer_has_the_bits_that_it_has_alone_and_over_http(tmp_path: Path, path: str, dtype: str) -> None:
    async def test(many: Together) -> None:
        asked = one_to_one(dtype)
        values = values_of(dtype)
        many.service.catalog.serve(ScriptedModel("echo", 1, signature=asked.signature, outputs=[values]))
        if path == INFER:
            request = infer_message(values, dtype)
            request.model_name = "echo"
        else:
            request = predict_message(tensor(values, dtype))
            request.model_spec.name = "echo"
        many.ask(*[request] * 4, path=path)
        first = await many.answers()
        many.ask(*[request] * 4, path=path)
        second = await many.answers()
        many.ask(*[request] * 4, path=path, x_request_id="mine")  # which is answered alone
        alone = await many.answers()
        assert {headers["x-request-id"] for _, headers in alone} == {"mine"}
        assert {headers["grpc-status"] for _, headers in (*first, *second, *alone)} == {"0"}
        assert len({body for body, _ in (*first, *second, *alone)}) == 1
        if path == INFER:
            (raw,) = RESPONSE.FromString(first[0][0]).raw_output_contents
            names = [{"name": "y", "parameters": {"binary_data": True}}]
            inputs = {"name": "x", "datatype": request.inputs[0].datatype, "shape": list(values.shape)}
            n_bytes = len(request.raw_input_contents[0])
            head = json.dumps(
                {"inputs": [{**inputs, "parameters": {"binary_data_size": n_bytes}}], "outputs": names}
            ).encode()
            answer = await asyncio.to_thread(
                many.service.request,
                "POST",
                "/v2/models/echo/infer",
                content=head + request.raw_input_contents[0],
                headers={"inference-header-content-length": str(len(head))},
            )
            assert answer.content.endswith(raw)

    together(test, tmp_path)


def test_a_bad_one_among_them_gets_its_error_and_the_others_their_answers(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        bodies = [infer_request([k, 2, 3]) for k in range(6)]
        bodies[2] = infer_request([1, 2])
        bodies[4] = b"\xff"
        for _ in range(2):
            many.ask(*bodies)
            answers = await many.answers()
            assert [headers["grpc-status"] for _, headers in answers] == ["0", "0", "3", "0", "3", "0"]
            assert "expected FP32" in answers[2][1]["grpc-message"]
            assert totals([answers[k] for k in (0, 1, 3, 5)]) == [5, 6, 8, 10]
        assert many.codes() == {"200": 8.0, "400": 4.0}

    together(test, tmp_path, n=6)


def test_calls_of_both_protocols_and_of_several_models_are_told_apart(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        many.service.catalog.serve(ScriptedModel("other", 1, outputs=[np.float32([7])]))
        a, b = many.clients[:2], many.clients[2:]
        for _ in range(2):
            many.ask(infer_request([1, 2, 3]), infer_request([1, 2, 3], model="other"), clients=a)
            request = predict_message(tensor(np.float32([[1, 1, 1]]), "float32"))
            request.model_spec.name = "sum"
            many.ask(request, infer_request([1, 2, 3], model="nobody").SerializeToString(), clients=b, path=PREDICT)
            answers = await many.answers()
            assert totals(answers[:2]) == [6, 7]
            predicted = message_class("tensorflow.serving.PredictResponse").FromString(answers[2][0])
            assert list(predicted.outputs["total"].float_val) == [3]
            assert answers[3][1]["grpc-status"] in ("3", "5")

    together(test, tmp_path)


def test_ids_in_messages_are_repeated(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        for _ in range(2):
            many.ask(*[infer_request([k, 0, 0], id=f"id-{k}") for k in range(4)])
            answers = await many.answers()
            assert [RESPONSE.FromString(body).id for body, _ in answers] == ["id-0", "id-1", "id-2", "id-3"]

    together(test, tmp_path)


def test_many_calls_of_one_connection_are_answered_together(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        (client,) = many.clients
        for k in range(20):
            many.ask(infer_request([k, 0, 0]))
        await settled()
        ended = [at for kind, flags, at, _ in client.transport.frames() if kind == Kind.HEADERS and flags & END_STREAM]
        assert sorted(ended) == list(range(1, 41, 2))
        assert len({id(rows.columns[0].base) for rows in many.model.rows}) == 1
        assert not client.connection.streams

    together(test, tmp_path, n=1)


def test_a_refusal_of_one_is_its_own(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        many.model.refusal = QueueFull("the queue is full", retry_after_s=2.5)
        many.ask(*[infer_request([k, 2, 3]) for k in range(4)])
        answers = await many.answers()
        for body, headers in answers:
            assert (body, headers[":status"], headers["grpc-status"], headers["retry-after"]) == (b"", "200", "8", "3")
        many.model.refusal = None
        many.model.refusal_of_all = QueueFull("nobody is let in", retry_after_s=1.0)
        many.ask(*[infer_request([k, 2, 3]) for k in range(4)])
        assert {headers["grpc-message"] for _, headers in await many.answers()} == {"nobody is let in"}
        assert many.codes() == {"429": 8.0}

    together(test, tmp_path)


def test_a_version_that_takes_over_answers_the_next_calls(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        for version in (4, 5):
            many.service.catalog.serve(ScriptedModel("sum", version))
            many.ask(*[infer_request([1, 2, 3])] * 4)
            answers = await many.answers()
            assert {RESPONSE.FromString(body).model_version for body, _ in answers} == {str(version)}

    together(test, tmp_path)


def test_the_access_log_has_every_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(many: Together) -> None:
        with caplog.at_level("INFO"):
            many.ask(*[infer_request([1, 2, 3])] * 4)
            assert totals(await many.answers()) == [6] * 4
        lines = [record.getMessage() for record in caplog.records if "ModelInfer" in record.getMessage()]
        assert len(lines) == 4

    together(test, tmp_path, access_log=True)


def test_a_token_that_is_revoked_opens_nothing_any_more(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    add_token(path, entry("somebody", "predict", models=["sum"]))
    add_token(path, entry("else", "predict"))

    async def test(many: Together) -> None:
        bearer = {"authorization": "Bearer somebody"}
        many.service.catalog.serve(ScriptedModel("other", 1))
        for _ in range(2):
            many.ask(*[infer_request([1, 2, 3])] * 4, **bearer)
            assert totals(await many.answers()) == [6] * 4
            many.ask(*[infer_request([1, 2, 3], model="other")] * 4, **bearer)
            assert {headers["grpc-status"] for _, headers in await many.answers()} == {"7"}
            many.ask(*[infer_request([1, 2, 3])] * 4)
            assert {headers["grpc-status"] for _, headers in await many.answers()} == {"16"}
        revoke_token(path, "somebody")
        many.service.app.gate.renew()
        many.ask(*[infer_request([1, 2, 3])] * 4, **bearer)
        assert {headers["grpc-status"] for _, headers in await many.answers()} == {"16"}

    together(test, tmp_path, tokens_file=path, protect_predict=True)


def test_rows_are_charged_to_their_token(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        found: list[str] = []
        for _ in range(3):
            many.ask(*[infer_request([1, 2, 3], [1, 2, 3])] * 4, authorization="Bearer limited")
            found += [headers["grpc-status"] for _, headers in await many.answers()]
        # Of nine rows each call takes one when it comes, and another when it is read.
        assert (found[:4], found[-4:]) == (["0"] * 4, ["8"] * 4)
        assert sum(rows.n for rows in many.model.rows) <= 10

    limited = entry("limited", "predict", predict_rows_per_s=0.01, predict_rows_burst=9)
    together(test, tmp_path, tokens=(limited,), protect_predict=True)


def test_a_bug_in_reading_them_together_is_told_to_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(many: Together) -> None:
        monkeypatch.setattr(ScriptedModel, "predict_many", partial(_broken))
        many.ask(*[infer_request([k, 2, 3]) for k in range(4)])
        answers = await many.answers()
        for _, headers in answers:
            assert headers["grpc-status"] == "13"
            assert headers["x-request-id"] in headers["grpc-message"]
        assert many.codes() == {"500": 4.0}

    together(test, tmp_path)


def _broken(*_: Any, **__: Any) -> None:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("timeout", [None, 5.0])
def test_what_stock_grpc_sends_is_plain(tmp_path: Path, timeout: float | None) -> None:
    async def test(calling: Calling) -> None:
        gathering = calling.service.app.gathering
        add, paths = gathering.add, list[str]()

        def noted(hot: Any) -> None:
            paths.append(hot.path.model)
            add(hot)

        gathering.add = noted  # type: ignore[method-assign]
        for number in range(4):
            body = await calling.infer(infer_request([number, 2, 3]), timeout=timeout)
            assert RESPONSE.FromString(body).raw_output_contents[0] == np.float32([number + 5]).tobytes()
        assert paths == ["sum"] * 4

    over_grpc(test, tmp_path)
