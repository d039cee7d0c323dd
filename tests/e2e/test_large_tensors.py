"""Tensors of 16 MiB through a real server, by every protocol: the right answer to the bit, and bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import orjson
import pytest
import tritonclient.grpc
import tritonclient.http
from server_process import ServerProcess

from loadtests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.long]

N = 2**22
#: Of few digits: as many as all of them have are over max_body_bytes in JSON.
VALUES = (np.random.default_rng(16).integers(-9_999, 9_999, N) / np.float32(8)).astype(np.float32)
#: Tensors that a server may hold at the same time beyond what it holds between requests.
MAX_COPIES = 3


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose ``negated`` takes such a tensor. What is free is the kernel's at once, so that it can be seen."""
    store = tmp_path_factory.mktemp("wide") / "store"
    options = ("--import-package", "loadtests", "--grpc-port", str(free_port()))
    with ServerProcess(store, *options, environment={"MALLOC_MMAP_THRESHOLD_": "131072"}) as server:
        spec = {"inputs": {"x": {"dtype": "float32", "shape": [N]}}, "buckets": [1]}
        answer = httpx.put(
            f"{server.url}/v1/models/negated?wait=true",
            json={"import_path": "loadtests.large_tensors:negated", **spec},
            timeout=300,
        )
        assert answer.status_code == 200, answer.text
        yield server


def tfs_json(server: ServerProcess) -> Any:
    text = orjson.dumps(VALUES, option=orjson.OPT_SERIALIZE_NUMPY)
    answer = httpx.post(f"{server.url}/v1/models/negated:predict", content=b'{"instances":[%b]}' % text, timeout=120)
    assert answer.status_code == 200, answer.text[:300]
    return orjson.loads(answer.content)["predictions"]


def oip_json(server: ServerProcess) -> Any:
    text = orjson.dumps(VALUES, option=orjson.OPT_SERIALIZE_NUMPY)
    body = b'{"inputs":[{"name":"x","shape":[1,%d],"datatype":"FP32","data":%b}]}' % (N, text)
    answer = httpx.post(f"{server.url}/v2/models/negated/infer", content=body, timeout=120)
    assert answer.status_code == 200, answer.text[:300]
    return orjson.loads(answer.content)["outputs"][0]["data"]


def oip_binary(server: ServerProcess) -> Any:
    with tritonclient.http.InferenceServerClient(server.url.removeprefix("http://"), network_timeout=120) as client:
        tensor = tritonclient.http.InferInput("x", [1, N], "FP32")
        tensor.set_data_from_numpy(VALUES[None])
        result = client.infer("negated", [tensor])
        return result.as_numpy(result.get_response()["outputs"][0]["name"])


def oip_raw(server: ServerProcess) -> Any:
    headers = {"Inference-Header-Content-Length": "0"}
    url = f"{server.url}/v2/models/negated/infer"
    answer = httpx.post(url, content=VALUES.tobytes(), headers=headers, timeout=120)
    assert answer.status_code == 200, answer.text[:300]
    return np.frombuffer(answer.content[int(answer.headers["inference-header-content-length"]) :], np.float32)


def oip_grpc(server: ServerProcess) -> Any:
    with tritonclient.grpc.InferenceServerClient(server.grpc_address) as client:
        tensor = tritonclient.grpc.InferInput("x", [1, N], "FP32")
        tensor.set_data_from_numpy(VALUES[None])
        result = client.infer("negated", [tensor])
        return result.as_numpy(result.get_response().outputs[0].name)


def tfs_grpc(server: ServerProcess) -> Any:
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    unbounded = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(server.grpc_address, options=unbounded) as channel:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "negated"
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(VALUES[None]))
        answer = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=120)
        (output,) = answer.outputs.values()
        return tf.make_ndarray(output)


@pytest.mark.parametrize("ask", [tfs_json, oip_json, oip_binary, oip_raw, oip_grpc, tfs_grpc])
def test_tensors_of_16_mib_are_answered_right_by_every_protocol(
    wide: ServerProcess, ask: Callable[[ServerProcess], Any]
) -> None:
    assert np.float32(ask(wide)).tobytes() == (-VALUES).tobytes()


@pytest.mark.parametrize("ask", [oip_binary, oip_raw])
def test_a_binary_tensor_is_held_in_three_copies_at_most(
    wide: ServerProcess, ask: Callable[[ServerProcess], Any]
) -> None:
    for _ in range(3):  # until what is made at first is made
        ask(wide)
    before = memory(wide, "VmRSS")
    Path(f"/proc/{wide.process.pid}/clear_refs").write_text("5")
    ask(wide)
    assert (memory(wide, "VmHWM") - before) / VALUES.nbytes <= MAX_COPIES


def memory(server: ServerProcess, field: str) -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1_024
