"""What can be asked over gRPC beside predictions: models, their states and statistics, health, reflection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.protocol.messages import message_class
from server.store.records import State
from tests.web.rpc.serving import Calling, infer_request, over_grpc, until
from tests.web.scripted_model import SEQUENCE, ScriptedAnswer, ScriptedModel

OIP = "inference.GRPCInferenceService"
TFS = "tensorflow.serving"


async def ask(calling: Calling, method: str, **fields: Any) -> Any:
    """Ask a method of the inference service, by the names of its messages."""
    return await calling.answer(
        f"{OIP}/{method}", f"inference.{method}Request", f"inference.{method}Response", **fields
    )


def test_the_server_says_that_it_lives_is_ready_and_what_it_is(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        assert (await ask(calling, "ServerLive")).live
        assert (await ask(calling, "ServerReady")).ready
        calling.service.catalog.not_ready = ["model 'sum' is loading"]
        assert not (await ask(calling, "ServerReady")).ready
        about = await ask(calling, "ServerMetadata")
        assert about.name == "rowwise"
        assert "statistics" in about.extensions

    over_grpc(test, tmp_path)


def test_models_say_whether_they_are_ready_and_what_they_take(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        catalog = calling.service.catalog
        catalog.serve(ScriptedModel("words", 2, signature=SEQUENCE))
        assert (await ask(calling, "ModelReady", name="sum")).ready
        assert (await ask(calling, "ModelReady", name="sum", version="3")).ready
        catalog.add("sum", 4, State.BUILDING)
        assert not (await ask(calling, "ModelReady", name="sum", version="4")).ready
        about = await ask(calling, "ModelMetadata", name="words")
        assert (about.name, list(about.versions)) == ("words", ["2"])
        assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in about.inputs] == [
            ("tokens", "INT32", [-1, -1, 2]),
            ("text", "BYTES", [-1]),
        ]
        assert [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in about.outputs] == [
            ("logits", "BF16", [-1, -1])
        ]
        code, sentence, _ = await calling.refused(ask(calling, "ModelReady", name="nobody"))
        assert (code, sentence[:15]) == ("NOT_FOUND", "model 'nobody' ")

    over_grpc(test, tmp_path)


def test_configuration_and_statistics_are_tritons(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        config = (await ask(calling, "ModelConfig", name="sum")).config
        assert (config.name, config.max_batch_size) == ("sum", list(calling.model.batch_sizes)[-1])
        assert [(tensor.name, tensor.data_type, list(tensor.dims)) for tensor in config.input] == [("x", 11, [3])]
        assert list(config.dynamic_batching.preferred_batch_size) == list(calling.model.batch_sizes)
        (statistics,) = (await ask(calling, "ModelStatistics", name="sum")).model_stats
        assert (statistics.name, statistics.version, statistics.inference_count) == ("sum", "3", 0)
        assert statistics.inference_stats.HasField("compute_infer")
        assert len((await ask(calling, "ModelStatistics")).model_stats) == 1

    over_grpc(test, tmp_path)


def test_the_repository_is_listed_and_models_are_unloaded_and_loaded(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        calling.service.catalog.add("sum", 4, State.BUILDING)
        index = (await ask(calling, "RepositoryIndex")).models
        assert [(model.name, model.version, model.state) for model in index] == [
            ("sum", "3", "READY"),
            ("sum", "4", "UNAVAILABLE"),
        ]
        assert len((await ask(calling, "RepositoryIndex", ready=True)).models) == 1
        await ask(calling, "RepositoryModelUnload", model_name="sum")
        assert (await calling.refused(calling.infer(infer_request([1, 2, 3]))))[0] in {"NOT_FOUND", "UNAVAILABLE"}
        await ask(calling, "RepositoryModelLoad", model_name="sum")
        with_config = message_class("inference.RepositoryModelLoadRequest")(model_name="sum")
        with_config.parameters["config"].string_param = "{}"
        code, sentence, _ = await calling.refused(calling.call(f"/{OIP}/RepositoryModelLoad", with_config))
        assert (code, "as it was built" in sentence) == ("UNIMPLEMENTED", True)

    over_grpc(test, tmp_path)


def test_who_manages_models_needs_the_token_and_who_asks_of_them_only_where_predictions_do(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        assert (await calling.refused(ask(calling, "RepositoryIndex")))[0] == "UNAUTHENTICATED"
        assert (await calling.refused(ask(calling, "RepositoryModelUnload", model_name="sum")))[0] == "UNAUTHENTICATED"
        assert (await ask(calling, "ModelReady", name="sum")).ready

    over_grpc(test, tmp_path, token="secret")


def test_asking_of_models_is_protected_as_predictions_are(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        assert (await calling.refused(ask(calling, "ModelReady", name="sum")))[0] == "UNAUTHENTICATED"
        status = message_class(f"{TFS}.GetModelStatusRequest")()
        status.model_spec.name = "sum"
        code, _, _ = await calling.refused(calling.call(f"/{TFS}.ModelService/GetModelStatus", status))
        assert code == "UNAUTHENTICATED"
        assert (await ask(calling, "ServerLive")).live

    over_grpc(test, tmp_path, token="secret", protect_predict=True)


def test_versions_have_their_states(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        catalog = calling.service.catalog
        catalog.add("sum", 4, State.FAILED, reason="it does not compile")
        request = message_class(f"{TFS}.GetModelStatusRequest")()
        request.model_spec.name = "sum"
        answer = message_class(f"{TFS}.GetModelStatusResponse")
        states = answer.FromString(await calling.call(f"/{TFS}.ModelService/GetModelStatus", request))
        assert [(each.version, each.state, each.status.error_code) for each in states.model_version_status] == [
            (4, 50, 9),
            (3, 30, 0),
        ]
        assert states.model_version_status[0].status.error_message == "it does not compile"
        request.model_spec.version.value = 3
        states = answer.FromString(await calling.call(f"/{TFS}.ModelService/GetModelStatus", request))
        assert [each.version for each in states.model_version_status] == [3]

    over_grpc(test, tmp_path)


def test_a_signature_is_told_as_tensorflow_serving_tells_it(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        request = message_class(f"{TFS}.GetModelMetadataRequest")(metadata_field=["signature_def"])
        request.model_spec.name = "sum"
        body = await calling.call(f"/{TFS}.PredictionService/GetModelMetadata", request)
        response = message_class(f"{TFS}.GetModelMetadataResponse").FromString(body)
        assert (response.model_spec.name, response.model_spec.version.value) == ("sum", 3)
        packed = response.metadata["signature_def"]
        assert packed.type_url.endswith("/tensorflow.serving.SignatureDefMap")
        signature = message_class(f"{TFS}.SignatureDefMap").FromString(packed.value).signature_def["serving_default"]
        assert [dim.size for dim in signature.inputs["x"].tensor_shape.dim] == [-1, 3]
        assert (signature.inputs["x"].dtype, signature.method_name) == (1, "tensorflow/serving/predict")
        request.metadata_field.append("other")
        code, sentence, _ = await calling.refused(calling.call(f"/{TFS}.PredictionService/GetModelMetadata", request))
        assert (code, "'other'" in sentence) == ("INVALID_ARGUMENT", True)

    over_grpc(test, tmp_path)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (f"/{TFS}.PredictionService/Classify", "use 'Predict'"),
        (f"/{TFS}.PredictionService/MultiInference", "use 'Predict'"),
        (f"/{TFS}.ModelService/HandleReloadConfigRequest", "over HTTP"),
        (f"/{OIP}/TraceSetting", "has no method 'TraceSetting' here; it has ServerLive, "),
        ("/nobody.Service/Call", ""),
    ],
)
def test_what_is_not_offered_is_said(tmp_path: Path, path: str, says: str) -> None:
    async def test(calling: Calling) -> None:
        code, sentence, _ = await calling.refused(calling.call(path))
        assert (code, says in sentence) == ("UNIMPLEMENTED", True)

    over_grpc(test, tmp_path)


async def health(calling: Calling, service: str = "") -> str:
    answer = await calling.answer(
        "grpc.health.v1.Health/Check",
        "grpc.health.v1.HealthCheckRequest",
        "grpc.health.v1.HealthCheckResponse",
        service=service,
    )
    return {1: "SERVING", 2: "NOT_SERVING"}[answer.status]


def test_health_is_readiness(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        assert [await health(calling, name) for name in ("", OIP, f"{TFS}.PredictionService")] == ["SERVING"] * 3
        assert (await calling.refused(health(calling, "nobody")))[0] == "NOT_FOUND"
        watch = calling.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        answer = message_class("grpc.health.v1.HealthCheckResponse")
        assert answer.FromString(await watch.read()).status == 1
        calling.service.catalog.not_ready = ["it is loading"]
        assert await health(calling) == "NOT_SERVING"
        assert answer.FromString(await watch.read()).status == 2
        watch.cancel()

    over_grpc(test, tmp_path)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_tools_can_ask_which_services_there_are(tmp_path: Path, version: str) -> None:
    async def test(calling: Calling) -> None:
        request = message_class(f"grpc.reflection.{version}.ServerReflectionRequest")
        stream = calling.channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")()

        async def about(**fields: Any) -> Any:
            await stream.write(request(**fields).SerializeToString())
            answer = message_class(f"grpc.reflection.{version}.ServerReflectionResponse")
            return answer.FromString(await stream.read())

        listed = (await about(list_services="")).list_services_response.service
        assert {OIP, f"{TFS}.PredictionService", "grpc.health.v1.Health"} <= {service.name for service in listed}
        files = (await about(file_containing_symbol=f"{TFS}.PredictionService")).file_descriptor_response
        # With what it imports: a tool builds the messages from it.
        assert len(files.file_descriptor_proto) == 5
        assert (await about(file_by_filename="health.proto")).HasField("file_descriptor_response")
        assert (await about(file_by_filename="other.proto")).error_response.error_code == 5
        await stream.done_writing()

    over_grpc(test, tmp_path)


def test_leaving_answers_who_runs_and_turns_others_away(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        calling.model.holds = True
        running = calling.infer(infer_request([1, 2, 3]))
        stream = calling.channel.stream_stream(f"/{OIP}/ModelStreamInfer")()
        await stream.write(infer_request([4, 5, 6]).SerializeToString())
        watch = calling.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        await watch.read()
        await until(lambda: len(calling.model.held) == 2)
        # Who does not wait for a message when its stream ends with an error never sees it.
        answered, watched = asyncio.create_task(stream.read()), asyncio.create_task(watch.read())
        calling.service.catalog.is_draining = True
        stopping = asyncio.create_task(calling.server.stop(20.0))
        await asyncio.sleep(0.02)
        code, _, _ = await calling.refused(calling.infer(infer_request([1, 2, 3])))
        assert code == "UNAVAILABLE"
        assert message_class("grpc.health.v1.HealthCheckResponse").FromString(await watched).status == 2
        await asyncio.sleep(0.3)
        code, _, _ = await calling.refused(calling.infer(infer_request([1, 2, 3])))
        assert code == "UNAVAILABLE"
        assert not stopping.done()
        for done in calling.model.held:
            done(ScriptedAnswer(outputs=[np.float32([6])]))
        await running
        assert await answered
        await asyncio.wait_for(stopping, 10)

    over_grpc(test, tmp_path)


def test_a_stream_that_is_left_by_the_server_ends_with_the_reason(tmp_path: Path) -> None:
    async def test(calling: Calling) -> None:
        stream = calling.channel.stream_stream(f"/{OIP}/ModelStreamInfer")()
        await stream.write(infer_request([1, 2, 3]).SerializeToString())
        await stream.read()
        stopping = asyncio.create_task(calling.server.stop(20.0))
        code, _, _ = await calling.refused(stream.read())
        assert code == "UNAVAILABLE"
        await asyncio.wait_for(stopping, 10)

    over_grpc(test, tmp_path)
