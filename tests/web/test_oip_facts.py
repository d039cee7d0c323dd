"""What the Open Inference Protocol tells of models, and its repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.signature import LengthAxis, ModelSignature, TensorSignature
from server.store.records import State
from tests.web.scripted import REMOTE, Service
from tests.web.scripted_model import ScriptedModel

MIXED = ModelSignature(
    inputs=(
        TensorSignature(name="tokens", dtype="int32", shape=("n", 2)),
        TensorSignature(name="text", dtype="string", shape=()),
        TensorSignature(name="seed", dtype="int64", shape=(), is_optional=True),
    ),
    outputs=(
        TensorSignature(name="logits", dtype="bfloat16", shape=("n",)),
        TensorSignature(name="kept", dtype="float16", shape=("as_many_as_it_likes",)),
    ),
    axes=(LengthAxis(name="n", max=8, buckets=(4, 8)),),
)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    found = Service(tmp_path)
    found.catalog.add("mixed", 1, State.FAILED, reason="op Svd has no converter")
    found.catalog.add("mixed", 2, State.UNLOADED)
    found.catalog.serve(ScriptedModel("mixed", 3, signature=MIXED))
    return found


def test_the_server_says_who_it_is_and_what_it_offers(service: Service) -> None:
    told = service.request("GET", "/v2").json()
    assert told["name"] == "rowwise"
    assert told["version"][0].isdigit()
    assert {"binary_tensor_data", "model_repository", "statistics", "model_configuration"} <= set(told["extensions"])


@pytest.mark.parametrize("path", ["/v2/models/mixed", "/v2/models/mixed/versions/3"])
def test_metadata_counts_examples_in_the_first_dimension(service: Service, path: str) -> None:
    assert service.request("GET", path).json() == {
        "name": "mixed",
        "versions": ["3"],
        "platform": "tensorflow_rowwise",
        "inputs": [
            {"name": "tokens", "datatype": "INT32", "shape": [-1, -1, 2], "parameters": {"max_shape": [-1, 8, 2]}},
            {"name": "text", "datatype": "BYTES", "shape": [-1]},
            {"name": "seed", "datatype": "INT64", "shape": [-1], "parameters": {"optional": True}},
        ],
        "outputs": [
            {"name": "logits", "datatype": "BF16", "shape": [-1, -1], "parameters": {"max_shape": [-1, 8]}},
            {"name": "kept", "datatype": "FP16", "shape": [-1, -1]},
        ],
    }


def test_a_configuration_has_the_sizes_of_batches_and_no_batch_dimension(service: Service) -> None:
    config = service.request("GET", "/v2/models/mixed/config").json()
    assert config["max_batch_size"] == 16
    assert config["dynamic_batching"] == {"preferred_batch_size": [1, 4, 16], "max_queue_delay_microseconds": 0}
    assert config["input"] == [
        {"name": "tokens", "data_type": "TYPE_INT32", "dims": [-1, 2]},
        {"name": "text", "data_type": "TYPE_STRING", "dims": []},
        {"name": "seed", "data_type": "TYPE_INT64", "dims": [], "optional": True},
    ]
    assert config["output"] == [
        {"name": "logits", "data_type": "TYPE_BF16", "dims": [-1]},
        {"name": "kept", "data_type": "TYPE_FP16", "dims": [-1]},
    ]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/models/mixed/ready", 200),
        ("/v2/models/mixed/versions/3/ready", 200),
        ("/v2/models/mixed/versions/2/ready", 503),
        ("/v2/models/mixed/versions/9/ready", 404),
        ("/v2/models/mixed/versions/latest/ready", 400),
        ("/v2/models/nobody/ready", 404),
        ("/v2/models/nobody", 404),
        ("/v2/models/nobody/config", 404),
        ("/v2/models/nobody/stats", 404),
    ],
)
def test_a_question_about_what_is_not_there_is_an_error(service: Service, path: str, status: int) -> None:
    answer = service.request("GET", path)
    assert answer.status_code == status
    assert (
        answer.json() == {"name": "mixed", "ready": True} if status == 200 else isinstance(answer.json()["error"], str)
    )


@pytest.mark.parametrize("path", ["/v2/models/stats", "/v2/models/mixed/stats", "/v2/models/mixed/versions/3/stats"])
def test_statistics_are_in_nanoseconds_and_in_the_shape_that_perf_analyzer_reads(service: Service, path: str) -> None:
    counted = service.catalog.served["mixed", 3].statistics
    counted.succeeded(took_s=0.5, queue_s=0.25)
    counted.failed(0.125)
    (told,) = service.request("GET", path).json()["model_stats"]
    none = {"count": 0, "ns": 0}
    assert told == {
        "name": "mixed",
        "version": "3",
        "last_inference": 0,
        "inference_count": 0,
        "execution_count": 0,
        "inference_stats": {
            "success": {"count": 1, "ns": 500_000_000},
            "fail": {"count": 1, "ns": 125_000_000},
            "queue": {"count": 1, "ns": 250_000_000},
            "compute_input": none,
            "compute_infer": none,
            "compute_output": none,
            "cache_hit": none,
            "cache_miss": none,
        },
        "response_stats": {},
        "batch_stats": [],
        "memory_usage": [],
    }


def test_the_repositorys_index_lists_every_version_with_its_reason(service: Service) -> None:
    assert service.request("POST", "/v2/repository/index").json() == [
        {
            "name": "mixed",
            "version": "1",
            "state": "UNAVAILABLE",
            "reason": "its build failed: op Svd has no converter",
        },
        {
            "name": "mixed",
            "version": "2",
            "state": "UNAVAILABLE",
            "reason": "version 2 is not loaded; activate it",
        },
        {"name": "mixed", "version": "3", "state": "READY", "reason": ""},
    ]
    only_ready = service.request("POST", "/v2/repository/index", json={"ready": True}).json()
    assert [entry["version"] for entry in only_ready] == ["3"]


def test_unload_withdraws_a_model_and_load_brings_it_back(service: Service) -> None:
    unloaded = service.request(
        "POST", "/v2/repository/models/mixed/unload", json={"parameters": {"unload_dependents": False}}
    )
    assert (unloaded.status_code, unloaded.json()["state"]) == (200, "UNAVAILABLE")
    loaded = service.request("POST", "/v2/repository/models/mixed/load", json={})
    assert (loaded.status_code, loaded.json()) == (
        200,
        {"name": "mixed", "version": "3", "state": "READY", "reason": ""},
    )
    assert service.request("POST", "/v2/repository/models/nobody/load").status_code == 404


def test_a_load_that_would_change_the_model_is_refused(service: Service) -> None:
    answer = service.request("POST", "/v2/repository/models/mixed/load", json={"parameters": {"config": "{}"}})
    assert answer.status_code == 501
    assert "register another version" in answer.json()["error"]


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"ready": 1}', b"\xff", b"[" * 20_000])
def test_a_body_that_is_no_request_to_the_repository_is_400(service: Service, body: bytes) -> None:
    assert service.request("POST", "/v2/repository/index", content=body).status_code == 400


@pytest.mark.parametrize(
    "path", ["/v2/repository/index", "/v2/repository/models/mixed/load", "/v2/repository/models/mixed/unload"]
)
def test_the_repository_takes_the_right_to_manage(tmp_path: Path, path: str) -> None:
    assert Service(tmp_path).request("POST", path, client=REMOTE).status_code == 403
    assert Service(tmp_path, token="secret").request("POST", path).status_code == 401


def test_questions_take_a_token_only_where_predictions_do(tmp_path: Path) -> None:
    for protects, status in ((False, 200), (True, 401)):
        service = Service(tmp_path, token="secret", protect_predict=protects)
        service.catalog.serve(ScriptedModel("mixed", 3, signature=MIXED))
        for path in ("/v2/models/mixed", "/v2/models/mixed/ready", "/v2/models/mixed/config", "/v2/models/stats"):
            assert service.request("GET", path, client=REMOTE).status_code == status
        assert service.request("GET", "/v2", client=REMOTE).status_code == 200
