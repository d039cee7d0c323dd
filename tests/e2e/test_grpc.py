"""Stock gRPC clients, as they are, against the real server: the answers of HTTP, to the bit."""

from __future__ import annotations

import asyncio
import queue
import socket
import struct
from collections.abc import Iterator
from itertools import islice
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
from server_process import ServerProcess

import models.digits
from tests.protocol.stock_messages import compared_with_stock_clients

pytestmark = [pytest.mark.e2e]


@pytest.fixture(scope="module")
def images() -> np.ndarray[Any, Any]:
    return np.stack([example["image"] for example in islice(models.digits.examples(), 64)])


@pytest.fixture(scope="module")
def over_http(server: ServerProcess, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What HTTP answers, one example in each request."""
    with httpx.Client(base_url=server.url) as http:
        answers = [http.post("/v1/models/digits:predict", json={"instances": [image.tolist()]}) for image in images]
    return np.float32([answer.json()["predictions"][0] for answer in answers])


@pytest.fixture(scope="module")
def triton(server: ServerProcess) -> Iterator[tritonclient.grpc.InferenceServerClient]:
    with tritonclient.grpc.InferenceServerClient(server.grpc_address) as client:
        yield client


def inputs_of(images: np.ndarray[Any, Any]) -> list[tritonclient.grpc.InferInput]:
    tensor = tritonclient.grpc.InferInput("image", list(images.shape), "FP32")
    tensor.set_data_from_numpy(images)
    return [tensor]


def test_tritonclient_infers(triton: Any, images: np.ndarray[Any, Any], over_http: np.ndarray[Any, Any]) -> None:
    for image, expected in zip(images[:16], over_http, strict=False):
        result = triton.infer("digits", inputs_of(image[None]), request_id="r")
        assert result.as_numpy("probabilities").tobytes() == expected.tobytes()
        assert result.get_response().id == "r"


def test_tritonclient_asks_of_server_and_model(triton: Any) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("digits")
    assert triton.get_server_metadata().name == "rowwise"
    assert [tensor.name for tensor in triton.get_model_metadata("digits").inputs] == ["image"]
    config = triton.get_model_config("digits").config
    assert (config.name, config.input[0].name) == ("digits", "image")
    assert triton.get_inference_statistics("digits").model_stats[0].inference_count > 0
    # Other tests of this server register models of their own.
    assert "digits" in [model.name for model in triton.get_model_repository_index().models]
    with pytest.raises(tritonclient.grpc.InferenceServerException, match="model 'nobody' is unknown"):
        triton.get_model_metadata("nobody")


def test_tritonclient_streams(
    server: ServerProcess, images: np.ndarray[Any, Any], over_http: np.ndarray[Any, Any]
) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(server.grpc_address) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for index, image in enumerate(images):
            client.async_stream_infer("digits", inputs_of(image[None]), request_id=str(index))
        for index, expected in enumerate(over_http):
            result, error = answers.get(timeout=60)
            assert error is None
            assert result.get_response().id == str(index)
            np.testing.assert_allclose(result.as_numpy("probabilities")[0], expected, atol=1e-6)


def test_tritonclient_infers_asynchronously(
    server: ServerProcess, images: np.ndarray[Any, Any], over_http: np.ndarray[Any, Any]
) -> None:
    async def run() -> list[Any]:
        async with tritonclient.grpc.aio.InferenceServerClient(server.grpc_address) as client:
            results = await asyncio.gather(*(client.infer("digits", inputs_of(image[None])) for image in images))
            return [result.as_numpy("probabilities")[0] for result in results]

    np.testing.assert_allclose(asyncio.run(run()), over_http, atol=1e-6)


def test_tensorflow_serving_api_predicts_and_asks(
    server: ServerProcess, images: np.ndarray[Any, Any], over_http: np.ndarray[Any, Any]
) -> None:
    import tensorflow as tf
    from tensorflow_serving.apis import (
        get_model_metadata_pb2,
        get_model_status_pb2,
        model_service_pb2_grpc,
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    assert compared_with_stock_clients({"tensorflow", "tensorflow.serving", "inference"}) > 40
    with grpc.insecure_channel(server.grpc_address) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        for image, expected in zip(images[:8], over_http, strict=False):
            request = predict_pb2.PredictRequest()
            request.model_spec.name = "digits"
            request.inputs["image"].CopyFrom(tf.make_tensor_proto(image[None]))
            answer = stub.Predict(request, timeout=30)
            assert tf.make_ndarray(answer.outputs["probabilities"]).tobytes() == expected.tobytes()
            assert list(answer.outputs["probabilities"].float_val) == expected.tolist()
        asked = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        asked.model_spec.name = "digits"
        signatures = get_model_metadata_pb2.SignatureDefMap()
        assert stub.GetModelMetadata(asked).metadata["signature_def"].Unpack(signatures)
        assert "image" in signatures.signature_def["serving_default"].inputs
        status = get_model_status_pb2.GetModelStatusRequest()
        status.model_spec.name = "digits"
        (version,) = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status).model_version_status
        assert version.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE


def test_many_rows_of_one_request_are_answered_in_their_order(
    triton: Any, images: np.ndarray[Any, Any], over_http: np.ndarray[Any, Any]
) -> None:
    result = triton.infer("digits", inputs_of(np.tile(images, (50, 1)))).as_numpy("probabilities")
    np.testing.assert_allclose(result, np.tile(over_http, (50, 1)), atol=1e-5)


def test_over_the_limit_the_error_names_the_setting(server: ServerProcess) -> None:
    too_large = np.zeros((2**18 + 1, 64), np.float32)
    with (
        tritonclient.grpc.InferenceServerClient(server.grpc_address) as client,
        pytest.raises(tritonclient.grpc.InferenceServerException, match=r"67108864 bytes \(max_body_bytes\)"),
    ):
        client.infer("digits", inputs_of(too_large))


def test_requests_over_grpc_are_counted_with_those_over_http(
    server: ServerProcess, triton: Any, images: np.ndarray[Any, Any]
) -> None:
    before = server.counted("rowwise_requests_total"), server.counted("rowwise_rows_total")
    triton.infer("digits", inputs_of(images[:5]))
    assert server.counted("rowwise_requests_total") == before[0] + 1
    assert server.counted("rowwise_rows_total") == before[1] + 5


def test_bytes_that_are_no_http2_hurt_nobody(server: ServerProcess, triton: Any) -> None:
    host, port = server.grpc_address.split(":")
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + struct.pack(">I", 2**31),
    ):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(garbage)
    assert triton.is_server_live()
