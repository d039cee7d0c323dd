"""Plain calls of one tick are read, admitted and answered together, and nobody can tell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hpack import Decoder

from server.batching import QueueFull
from server.http_server import new_event_loop
from server.protocol.messages import message_class
from server.rights import add_token, revoke_token
from server.web.http2.frames import END_HEADERS, END_STREAM, Kind, Setting, frame, window_update
from server.web.http2.frames import settings as settings_frame
from server.web.http2.header_blocks import literal
from server.web.rpc.framing import message
from server.web.rpc.plain_call import PlainCall
from server.web.rpc.server import RpcServer
from tests.protocol.asked import EVERY_DTYPE, one_to_one, values_of
from tests.protocol.test_oip_proto import message as infer_message
from tests.protocol.test_tfs_proto import message as predict_message
from tests.protocol.test_tfs_proto import tensor
from tests.web.http2.other_side import Client
from tests.web.rights import entry
from tests.web.rpc.serving import Calling, infer_request, over_grpc
from tests.web.scripted import ScriptedAnswer, ScriptedModel, Service

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
                frame(Kind.HEADERS, END_HEADERS, stream_id, _block(path, more))
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


def _block(path: str, more: Mapping[str, str] | None = None) -> bytes:
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


def held(many: Together, number: int) -> None:
    many.model.held[number](ScriptedAnswer(outputs=[np.float32([40 + number])]))


@pytest.mark.parametrize(("timeout", "counted"), [({}, "499"), ({"grpc_timeout": "10S"}, "504")])
def test_who_cancels_is_taken_back_and_the_others_are_answered(
    tmp_path: Path, timeout: dict[str, str], counted: str
) -> None:
    async def test(many: Together) -> None:
        many.model.holds = True
        stream_id = many.ask(*[infer_request([k, 2, 3]) for k in range(4)], **timeout)
        await settled()
        assert len(many.model.held) == 4
        many.clients[1].connection.streams[stream_id].handler._begun_s -= 10  # type: ignore[attr-defined]
        many.clients[1].feed(frame(Kind.RST_STREAM, 0, stream_id, bytes(4)))
        assert [ticket.cancelled for ticket in many.model.tickets] == [False, True, False, False]
        for number in range(4):
            held(many, number)
        answers = await many.answers()
        assert totals([answers[0], *answers[2:]]) == [40, 42, 43]
        assert answers[1] == (b"", {})
        assert many.codes() == {"200": 3.0, counted: 1.0}

    together(test, tmp_path)


def test_who_cancels_in_the_same_tick_is_not_run(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        stream_id = many.ask(*[infer_request([k, 2, 3]) for k in range(4)])
        for client in many.clients[:2]:
            client.feed(frame(Kind.RST_STREAM, 0, stream_id, bytes(4)))
        many.clients[3].connection.connection_lost(None)
        answers = await many.answers()
        assert totals([answers[2]]) == [7]
        assert [each[0] for each in answers[:2]] == [b"", b""]
        assert len(many.model.rows) == 1
        assert many.codes() == {"200": 1.0, "499": 3.0}

    together(test, tmp_path)


def test_deadlines_are_those_of_each(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        for timeout in ("2S", "500m", "3S"):
            many.ask(*[infer_request([k, 2, 3]) for k in range(4)], grpc_timeout=timeout)
        await many.answers()
        assert sorted(many.model.timeouts_s) == [0.5] * 4 + [2.0] * 4 + [3.0] * 4
        assert max(many.model.spent_s) < 0.5
        many.model.timeouts_s.clear()
        many.ask(infer_request([1, 2, 3]), clients=many.clients[:1], grpc_timeout="1999999u")
        many.ask(infer_request([1, 2, 3]), clients=many.clients[1:2], grpc_timeout="2S")
        await many.answers()
        # So near to each other that they are one, the earlier.
        assert many.model.timeouts_s == pytest.approx([1.999999] * 2, abs=1e-9)

    together(test, tmp_path)


def test_calls_whose_deadline_has_passed_are_not_read(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        many.ask(*[infer_request([1, 2, 3])] * 4, grpc_timeout="1n")
        assert {headers["grpc-status"] for _, headers in await many.answers()} == {"4"}
        assert (many.model.rows, many.codes()) == ([], {"504": 4.0})

    together(test, tmp_path)


def test_a_deadline_counts_from_the_headers(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        block = _block(INFER, {"grpc-timeout": "10S"})
        for client in many.clients:
            client.feed(frame(Kind.HEADERS, END_HEADERS, 1, block))
        await asyncio.sleep(0.15)
        for client in many.clients:
            client.feed(frame(Kind.DATA, END_STREAM, 1, message(infer_request([1, 2, 3]).SerializeToString())))
        assert totals(await many.answers()) == [6] * 4
        assert min(many.model.spent_s) > 0.1

    together(test, tmp_path)


def test_calls_under_way_are_answered_before_a_connection_that_leaves_is_closed(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        many.model.holds = True
        many.ask(*[infer_request([k, 2, 3]) for k in range(4)])
        await settled()
        for client in many.clients:
            client.connection.leave()
        late = many.ask(*[infer_request([1, 2, 3])] * 4)
        assert not any(client.transport.is_closed for client in many.clients)
        for number in range(4):
            held(many, number)
        await settled()
        for client in many.clients:
            kinds = [(kind, stream) for kind, _, stream, _ in client.transport.frames()]
            assert (Kind.GOAWAY, 0) in kinds
            assert (Kind.RST_STREAM, late) in kinds
            assert (Kind.DATA, 1) in kinds
            assert client.transport.is_closed
        assert many.codes() == {"200": 4.0}

    together(test, tmp_path)


def test_an_answer_waits_for_room_in_its_window(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        for client in many.clients[:2]:
            client.feed(settings_frame({Setting.INITIAL_WINDOW_SIZE: 10}))
        many.ask(*[infer_request([k, 2, 3]) for k in range(4)])
        await settled()
        parts = [dict.fromkeys([kind for kind, *_ in client.transport.frames()]) for client in many.clients[:2]]
        assert all(Kind.DATA in part for part in parts)
        assert [bool(client.connection.streams) for client in many.clients] == [True, True, False, False]
        many.clients[0].feed(window_update(1, 1_000))
        many.clients[1].feed(frame(Kind.RST_STREAM, 0, 1, bytes(4)))
        await settled()
        assert not any(client.connection.streams for client in many.clients)
        (answer,) = many.clients[0].answers()
        assert answer["grpc-status"] == "0"
        assert many.codes() == {"200": 4.0}, "it was answered before it was reset"

    together(test, tmp_path)


@pytest.mark.parametrize("where", [1, 5, 30])
def test_a_message_in_two_frames_is_read_as_ever(tmp_path: Path, where: int) -> None:
    async def test(many: Together) -> None:
        data = message(infer_request([1, 2, 3]).SerializeToString())
        block = _block(INFER)
        for client in many.clients:
            client.feed(frame(Kind.HEADERS, END_HEADERS, 1, block) + frame(Kind.DATA, 0, 1, data[:where]))
        for client in many.clients:
            client.feed(frame(Kind.DATA, END_STREAM, 1, data[where:]))
        assert totals(await many.answers()) == [6] * 4

    together(test, tmp_path)


def test_a_message_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        (client,) = many.clients
        client.feed(frame(Kind.HEADERS, END_HEADERS, 1, _block(INFER, {"grpc-timeout": "1m"})))
        (stream,) = client.connection.streams.values()
        assert isinstance(stream.handler, PlainCall)
        await asyncio.sleep(0.05)
        stream.handler.tick()
        (answer,) = client.answers()
        assert (answer["grpc-status"], "was not complete" in answer["grpc-message"]) == ("4", True)

    together(test, tmp_path, n=1)


def test_a_limit_that_is_smaller_than_a_frame_holds(tmp_path: Path) -> None:
    async def test(many: Together) -> None:
        many.ask(*[infer_request(*[[k, 2, 3]] * 5) for k in range(4)])
        for _, headers in await many.answers():
            assert (headers["grpc-status"], "max_body_bytes" in headers["grpc-message"]) == ("8", True)

    together(test, tmp_path, max_body_bytes=80)


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
