"""Inference in the Open Inference Protocol: past the router, in the hot lane and beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.batching import QueueFull
from server.protocol import OipFormat
from server.signature import ModelSignature, TensorSignature
from tests.web.scripted import REMOTE, Service
from tests.web.scripted_model import ScriptedModel
from tests.web.sockets import Answer, Connection, Running, over_sockets
from tests.web.wire import pieces

PATH = "/v2/models/sum/infer"
X = {"name": "x", "shape": [1, 3], "datatype": "FP32"}
ROW = np.array([[1, 2, 3]], np.float32)
BINARY = json.dumps({"inputs": [{**X, "parameters": {"binary_data_size": 12}}]}).encode()
ALL_BINARY = json.dumps(
    {"inputs": [{**X, "parameters": {"binary_data_size": 12}}], "parameters": {"binary_data_output": True}}
).encode()


def infer(*numbers: float, **more: Any) -> bytes:
    return json.dumps({"inputs": [{**X, "data": list(numbers)}], **more}).encode()


def post(body: bytes, *, headers: str = "", path: str = PATH) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def binary(header: bytes, values: bytes) -> bytes:
    return post(header + values, headers=f"Inference-Header-Content-Length: {len(header)}\r\n")


def answered(answer: Answer) -> dict[str, Any]:
    status, _, body = answer
    assert status == 200, body
    read: dict[str, Any] = json.loads(body)
    return read


@pytest.fixture
def service(tmp_path: Path) -> Service:
    found = Service(tmp_path)
    found.catalog.serve(ScriptedModel("sum", 3), labels={"best": ""})
    return found


def test_json_and_binary_requests_are_answered_in_the_hot_lane(tmp_path: Path) -> None:
    async def test(server: Running, connection: Connection) -> None:
        connection.send(post(infer(1, 2, 3, id="mine")))
        assert answered(await connection.answer()) == {
            "model_name": "sum",
            "model_version": "3",
            "id": "mine",
            "outputs": [{"name": "total", "datatype": "FP32", "shape": [1], "data": [6.0]}],
        }
        connection.send(binary(BINARY, ROW.tobytes()) + binary(ALL_BINARY, ROW.tobytes()))
        assert answered(await connection.answer())["outputs"][0]["data"] == [6.0]
        status, headers, body = await connection.answer()
        n_json = int(headers["inference-header-content-length"])
        assert (status, headers["content-type"]) == (200, "application/octet-stream")
        assert json.loads(body[:n_json])["outputs"][0]["parameters"] == {"binary_data_size": 4}
        assert np.frombuffer(body[n_json:], np.float32).tolist() == [6.0]
        assert server.codes() == {"200": 3}

    over_sockets(test, tmp_path)


def test_the_hot_lane_knows_paths_of_inference_and_no_others(service: Service) -> None:
    for path in (b"/v2/models/sum/infer", b"/v2/models/sum/versions/3/infer"):
        hot = service.app.hot_path(path)
        assert hot is not None
        assert hot.is_oip
    for path in (
        b"/v1/models/sum:infer",
        b"/v2/models/sum/stats",
        b"/v2/models/sum/infer?x=1",
        b"/v2/models/%73/infer",
    ):
        assert service.app.hot_path(path) is None


def test_a_body_without_json_is_answered_in_the_hot_lane(tmp_path: Path) -> None:
    async def test(_: Running, connection: Connection) -> None:
        connection.send(binary(b"", np.vstack([ROW, 2 * ROW]).tobytes()))
        _, _, body = await connection.answer()
        assert np.frombuffer(body[-8:], np.float32).tolist() == [6.0, 12.0]

    over_sockets(test, tmp_path)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (post(BINARY + ROW.tobytes(), headers="Inference-Header-Content-Length: -1\r\n"), "is no length"),
        (post(BINARY), "Inference-Header-Content-Length is missing"),
        (post(BINARY, headers="Inference-Header-Content-Length: 1000\r\n"), "says 1000 bytes of JSON"),
        (
            post(BINARY, headers=f"Inference-Header-Content-Length: {len(BINARY)}\r\n" * 2),
            "is there twice; send it once",
        ),
        (binary(BINARY, b"1234567"), "7 bytes follow the JSON part"),
        (post(b""), "the body is empty"),
        (post(b'{"instances": [[1, 2, 3]]}'), "required field `inputs`"),
        (post(infer(1, 2, 3), path="/v2/models/sum/versions/x/infer"), "is no version number"),
    ],
)
def test_a_request_that_can_not_be_read_is_400_with_a_sentence(tmp_path: Path, data: bytes, sentence: str) -> None:
    async def test(server: Running, connection: Connection) -> None:
        connection.send(data)
        status, _, body = await connection.answer()
        assert (status, sentence in json.loads(body)["error"]) == (400, True), body
        connection.send(post(infer(1, 2, 3)))
        assert answered(await connection.answer())["outputs"][0]["data"] == [6.0]
        assert server.codes() == {"400": 1, "200": 1}

    over_sockets(test, tmp_path)


def test_a_request_in_pieces_goes_the_other_way_and_gets_the_same_answer(service: Service) -> None:
    whole = service.request("POST", PATH, content=infer(1, 2, 3))
    body = ALL_BINARY + ROW.tobytes()
    headers = {"Inference-Header-Content-Length": str(len(ALL_BINARY))}
    chunked = service.request("POST", PATH, content=pieces(body[:20], body[20:]), headers=headers)
    assert whole.json()["outputs"][0]["data"] == [6.0]
    n_json = int(chunked.headers["inference-header-content-length"])
    assert np.frombuffer(chunked.content[n_json:], np.float32).tolist() == [6.0]
    for doubled in (
        [("Inference-Header-Content-Length", str(len(ALL_BINARY)))] * 2,
        {"Inference-Header-Content-Length": "x"},
    ):
        assert service.request("POST", PATH, content=body, headers=doubled).status_code == 400


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/models/sum/infer", 200),
        ("/v2/models/sum/versions/3/infer", 200),
        ("/v2/models/sum/labels/best/infer", 200),
        ("/v2/models/sum/labels/worst/infer", 404),
        ("/v2/models/sum/versions/4/infer", 404),
        ("/v2/models/nobody/infer", 404),
    ],
)
def test_versions_and_labels_choose_as_in_the_other_protocol(service: Service, path: str, status: int) -> None:
    assert service.request("POST", path, content=infer(1, 2, 3)).status_code == status


def test_other_methods_are_405_and_name_the_right_one(service: Service) -> None:
    for method in ("GET", "PUT", "DELETE"):
        answer = service.request(method, PATH)
        assert (answer.status_code, answer.headers["allow"]) == (405, "OPTIONS, POST")


def test_what_a_body_says_of_priority_and_time_reaches_the_queue(service: Service) -> None:
    model = service.catalog.served["sum", 3]
    service.request("POST", PATH, content=infer(1, 2, 3))
    service.request("POST", PATH, content=infer(1, 2, 3, parameters={"priority": 1, "timeout": 2_000_000}))
    for header, timeout_us in (("1500", 2_000_000), ("3000", 2_000_000)):
        service.request(
            "POST",
            PATH,
            content=infer(1, 2, 3, parameters={"timeout": timeout_us}),
            headers={"X-Request-Timeout-Ms": header},
        )
    assert model.priorities == [None, 1, None, None]
    assert model.timeouts_s == [None, 2.0, 1.5, 2.0]


def test_an_error_of_the_core_has_its_code_and_its_headers(service: Service) -> None:
    service.catalog.served["sum", 3].refusal = QueueFull("the queue is full", retry_after_s=2.5)
    answer = service.request("POST", PATH, content=infer(1, 2, 3))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert "full" in answer.json()["error"]


def test_an_answer_that_no_tensor_holds_is_refused_with_what_to_do(service: Service) -> None:
    signature = ModelSignature(
        inputs=(TensorSignature(name="x", dtype="float32", shape=(3,)),),
        outputs=(TensorSignature(name="kept", dtype="int32", shape=("as_many",)),),
    )
    rows: list[Any] = [np.array([1, 2], np.int32), np.array([3], np.int32)]
    model = service.catalog.serve(ScriptedModel("some", 1, signature=signature, outputs=rows))
    two = json.dumps({"inputs": [{**X, "shape": [2, 3], "data": [0] * 6}]}).encode()
    model.outputs = [rows]
    refused = service.request("POST", "/v2/models/some/infer", content=two)
    assert (refused.status_code, "':predict'" in refused.json()["error"]) == (400, True)
    assert service.counted("rowwise_requests_total", model="some", version="1", entry="predict", code="400") == 1
    model.outputs = [[rows[0], rows[0]]]
    same = service.request("POST", "/v2/models/some/infer", content=two).json()["outputs"][0]
    assert (same["shape"], same["data"]) == ([2, 2], [1, 2, 1, 2])
    model.outputs = [[rows[1]]]
    one = service.request("POST", "/v2/models/some/infer", content=infer(1, 2, 3)).json()["outputs"][0]
    assert (one["shape"], one["data"]) == ([1, 1], [3])


def test_inference_takes_a_token_where_predictions_do(tmp_path: Path) -> None:
    service = Service(tmp_path, token="secret", protect_predict=True)
    service.catalog.serve(ScriptedModel("sum", 3))
    assert service.request("POST", PATH, content=infer(1, 2, 3), client=REMOTE).status_code == 401
    headers = {"Authorization": "Bearer secret"}
    assert service.request("POST", PATH, content=infer(1, 2, 3), client=REMOTE, headers=headers).status_code == 200


def test_a_large_body_is_read_in_a_thread_and_answered_all_the_same(service: Service) -> None:
    n = 50_000
    service.app.predictor.max_instances = n
    x = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
    body = json.dumps({"inputs": [{**X, "shape": [n, 3], "data": x.reshape(-1).tolist()}]}).encode()
    answer = service.request("POST", PATH, content=body).json()["outputs"][0]
    assert answer["data"] == x.sum(axis=1).tolist()
    header = json.dumps({"inputs": [{**X, "shape": [n, 3], "parameters": {"binary_data_size": x.nbytes}}]}).encode()
    same = service.request(
        "POST", PATH, content=header + x.tobytes(), headers={"Inference-Header-Content-Length": str(len(header))}
    )
    assert same.json()["outputs"][0] == answer


def test_only_what_has_to_be_parsed_is_read_in_a_thread(service: Service) -> None:
    x = np.ones((1, 100_000), np.float32)
    inputs = (TensorSignature(name="x", dtype="float32", shape=(100_000,)),)
    total = (TensorSignature(name="total", dtype="float32", shape=()),)
    service.catalog.serve(ScriptedModel("wide", 1, signature=ModelSignature(inputs=inputs, outputs=total)))
    tensor = {**X, "shape": [1, 100_000]}
    header = json.dumps({"inputs": [{**tensor, "parameters": {"binary_data_size": x.nbytes}}]}).encode()
    in_json = json.dumps({"inputs": [{**tensor, "data": x[0].tolist()}]}).encode()
    replies: list[Any] = []
    hot = service.app.hot_path(b"/v2/models/wide/infer")
    assert hot is not None
    for body, wire in ((header + x.tobytes(), OipFormat(len(header))), (x.tobytes(), OipFormat(0))):
        service.app.predictor.start(
            hot,
            body,
            timeout_s=None,
            explain=False,
            request_id="1",
            on_reply=replies.append,
            received_s=0.0,
            caller=None,
            wire=wire,
        )
    # Without an event loop there is no way to a thread and back.
    assert [reply.status for reply in replies] == [200, 200]
    answer = service.request("POST", "/v2/models/wide/infer", content=in_json)
    assert answer.json()["outputs"][0]["data"] == [100_000.0]
