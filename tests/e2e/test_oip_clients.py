"""Stock clients of the Open Inference Protocol, unmodified: the answers that they get are :predict's to the bit."""

from __future__ import annotations

import asyncio
import subprocess
from itertools import islice
from typing import Any

import httpx
import numpy as np
import pytest
from server_process import ServerProcess

import models.digits

http_client = pytest.importorskip("tritonclient.http")
aio_client = pytest.importorskip("tritonclient.http.aio")

from tritonclient.utils import InferenceServerException  # noqa: E402 - it is there if its package is

pytestmark = pytest.mark.e2e

N = 3


@pytest.fixture(scope="module")
def images() -> np.ndarray[Any, Any]:
    return np.stack([np.asarray(example["image"]) for example in islice(models.digits.examples(), N)])


@pytest.fixture(scope="module")
def image(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """One row: it always runs in the smallest batch, and so to the same bits."""
    return images[:1]


@pytest.fixture(scope="module")
def predicted(server: ServerProcess, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    answer = httpx.post(server.url + "/v1/models/digits:predict", json={"instances": image.tolist()})
    return np.array(answer.json()["predictions"], np.float32)


@pytest.fixture
def client(server: ServerProcess) -> Any:
    with http_client.InferenceServerClient(server.url.removeprefix("http://")) as connected:
        yield connected


def asked(module: Any, images: np.ndarray[Any, Any], *, binary: bool) -> tuple[list[Any], list[Any]]:
    image = module.InferInput("image", list(images.shape), "FP32")
    image.set_data_from_numpy(images, binary_data=binary)
    return [image], [module.InferRequestedOutput("probabilities", binary_data=binary)]


@pytest.mark.parametrize("binary", [True, False])
def test_tritons_http_client_gets_the_answers_of_predict(
    client: Any, image: np.ndarray[Any, Any], predicted: np.ndarray[Any, Any], *, binary: bool
) -> None:
    inputs, outputs = asked(http_client, image, binary=binary)
    result = client.infer("digits", inputs, outputs=outputs, request_id="mine", priority=1, timeout=30_000_000)
    np.testing.assert_array_equal(result.as_numpy("probabilities"), predicted)
    assert (result.get_response()["id"], result.get_response()["model_version"]) == ("mine", "1")
    later = client.async_infer("digits", inputs, model_version="1")
    np.testing.assert_array_equal(later.get_result().as_numpy("probabilities"), predicted)
    packed = client.infer("digits", inputs)
    np.testing.assert_array_equal(packed.as_numpy("probabilities"), predicted)


@pytest.mark.parametrize("binary", [True, False])
def test_tritons_asyncio_client_gets_the_answers_of_predict(
    server: ServerProcess, image: np.ndarray[Any, Any], predicted: np.ndarray[Any, Any], *, binary: bool
) -> None:
    async def ask() -> Any:
        async with aio_client.InferenceServerClient(server.url.removeprefix("http://")) as connected:
            assert await connected.is_server_ready()
            inputs, outputs = asked(aio_client, image, binary=binary)
            return await connected.infer("digits", inputs, outputs=outputs)

    np.testing.assert_array_equal(asyncio.run(ask()).as_numpy("probabilities"), predicted)


def test_tritons_client_reads_what_the_server_tells_of_itself(client: Any, images: np.ndarray[Any, Any]) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "1")
    assert not client.is_model_ready("nobody")
    assert client.get_server_metadata()["name"] == "rowwise"
    metadata = client.get_model_metadata("digits")
    assert metadata["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 64]}]
    config = client.get_model_config("digits")
    assert config["max_batch_size"] == max(config["dynamic_batching"]["preferred_batch_size"])
    inputs, _ = asked(http_client, images, binary=True)
    (before,) = client.get_inference_statistics("digits")["model_stats"]
    client.infer("digits", inputs)
    (after,) = client.get_inference_statistics("digits")["model_stats"]
    assert after["inference_count"] == before["inference_count"] + N
    assert after["execution_count"] > before["execution_count"]
    for step in ("success", "queue", "compute_input", "compute_infer", "compute_output"):
        assert after["inference_stats"][step]["count"] > before["inference_stats"][step]["count"]
    assert after["inference_stats"]["compute_infer"]["ns"] > before["inference_stats"]["compute_infer"]["ns"]


def test_tritons_client_unloads_and_loads_a_model(client: Any) -> None:
    index = {entry["name"]: entry["state"] for entry in client.get_model_repository_index()}
    assert index["digits"] == "READY"
    client.unload_model("digits")
    assert not client.is_model_ready("digits")
    assert client.get_model_repository_index()[0]["state"] == "UNAVAILABLE"
    with pytest.raises(InferenceServerException, match="not loaded"):
        client.get_model_metadata("digits")
    client.load_model("digits")
    assert client.is_model_ready("digits")


def test_tritons_client_is_told_what_is_wrong(client: Any, images: np.ndarray[Any, Any]) -> None:
    inputs, _ = asked(http_client, images[:, :10], binary=True)
    with pytest.raises(InferenceServerException, match=r"expected the shape \[n, 64\].*got \[3, 10\]") as refused:
        client.infer("digits", inputs)
    assert refused.value.status() == "400"
    with pytest.raises(InferenceServerException, match="unknown"):
        client.infer("nobody", inputs)


def test_the_manuals_curl_lines_work(server: ServerProcess, images: np.ndarray[Any, Any]) -> None:
    values = ", ".join(map(str, images[0].tolist()))
    body = f'{{"inputs": [{{"name": "image", "shape": [1, 64], "datatype": "FP32", "data": [{values}]}}]}}'
    url = server.url + "/v2/models/digits/infer"
    told = subprocess.run(["curl", "-s", url, "-d", body], capture_output=True, check=True, timeout=60).stdout
    assert told.startswith(b'{"model_name":"digits","model_version":"1","outputs":[{"name":"probabilities"')
    raw = subprocess.run(
        ["curl", "-s", url, "-H", "Inference-Header-Content-Length: 0", "--data-binary", "@-"],
        input=images[0].tobytes(),
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout
    assert len(np.frombuffer(raw[raw.rindex(b"}") + 1 :], np.float32)) == 10
