"""TensorFlow Serving's status and metadata; health; metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from server.signature import TensorSignature
from server.store.records import State
from tests.web.scripted import Service
from tests.web.scripted_model import SEQUENCE, ScriptedModel


def status(version: str, state: str, code: str = "OK", message: str = "") -> dict[str, object]:
    return {"version": version, "state": state, "status": {"error_code": code, "error_message": message}}


@pytest.mark.parametrize("path", ["/v1/models/sum", "/v1/models/sum/versions/3", "/V1/MODELS/sum/Versions/3"])
def test_status_is_in_tensorflow_servings_words(service: Service, path: str) -> None:
    assert service.request("GET", path).json() == {"model_version_status": [status("3", "AVAILABLE")]}


def test_status_of_all_versions_is_newest_first_with_the_reason_of_a_failure(service: Service) -> None:
    states = [State.BUILDING, State.BUILT, State.LOADING, State.UNLOADING, State.UNLOADED]
    for number, state in enumerate(states, start=4):
        service.catalog.add("sum", number, state)
    service.catalog.add("sum", 9, State.FAILED, reason="op X")
    entries = service.request("GET", "/v1/models/sum").json()["model_version_status"]
    assert entries[0] == status("9", "END", "FAILED_PRECONDITION", "op X")
    assert [(e["version"], e["state"]) for e in entries[1:]] == [
        ("8", "END"), ("7", "UNLOADING"), ("6", "LOADING"), ("5", "START"), ("4", "START"), ("3", "AVAILABLE"),
    ]  # fmt: skip


def test_labels_lead_to_their_version_or_to_a_sentence(service: Service) -> None:
    service.catalog.serve(ScriptedModel("sum", 4), labels={"stable": ""})
    assert service.request("GET", "/v1/models/sum/labels/stable").json() == {
        "model_version_status": [status("4", "AVAILABLE")]
    }
    assert service.request("GET", "/v1/models/sum/labels/stable/metadata").status_code == 200
    missing = service.request("GET", "/v1/models/sum/labels/beta")
    assert missing.status_code == 404
    assert missing.json()["error"] == "model 'sum' has no version with the label 'beta'; it has 'stable'"


@pytest.mark.parametrize("tail", ["", "/versions/1", "/metadata", "/versions/1/metadata", "/labels/x"])
def test_an_unknown_model_is_404_everywhere(service: Service, tail: str) -> None:
    answer = service.request("GET", f"/v1/models/nobody{tail}")
    assert (answer.status_code, answer.json()) == (404, {"error": "model 'nobody' is unknown: register it first"})


def test_metadata_describes_the_batched_signature(service: Service) -> None:
    service.catalog.serve(ScriptedModel("seq", 2, SEQUENCE))

    def info(name: str, dtype: str, *sizes: str) -> dict[str, object]:
        dims = [{"size": size, "name": ""} for size in sizes]
        return {"name": f"{name}:0", "dtype": dtype, "tensor_shape": {"dim": dims, "unknown_rank": False}}

    for path in ("/v1/models/seq/metadata", "/v1/models/seq/versions/2/METADATA"):
        assert service.request("GET", path).json() == {
            "model_spec": {"name": "seq", "signature_name": "", "version": "2"},
            "metadata": {
                "signature_def": {
                    "signature_def": {
                        "serving_default": {
                            "inputs": {
                                "tokens": info("tokens", "DT_INT32", "-1", "-1", "2"),
                                "text": info("text", "DT_STRING", "-1"),
                            },
                            "outputs": {"logits": info("logits", "DT_BFLOAT16", "-1", "-1")},
                            "method_name": "tensorflow/serving/predict",
                        }
                    }
                }
            },
        }


def test_metadata_names_the_inputs_that_may_be_left_out(service: Service) -> None:
    seed = TensorSignature(name="seed", dtype="int64", shape=(), is_optional=True)
    service.catalog.serve(ScriptedModel("noisy", 1, replace(SEQUENCE, inputs=(*SEQUENCE.inputs, seed))))
    metadata = service.request("GET", "/v1/models/noisy/metadata").json()["metadata"]
    assert metadata["optional_inputs"] == ["seed"]
    assert "seed" in metadata["signature_def"]["signature_def"]["serving_default"]["inputs"]


def test_metadata_of_a_model_that_is_not_ready_is_503(service: Service) -> None:
    service.catalog.add("slow", 1, State.BUILDING)
    assert service.request("GET", "/v1/models/slow/metadata").status_code == 503


def test_live_is_always_answered_and_ready_gives_its_reasons(service: Service) -> None:
    assert service.request("GET", "/v2/health/live").json() == {"live": True}
    assert service.request("GET", "/v2/health/ready").json() == {"ready": True}
    service.catalog.not_ready = ["model 'a' is LOADING", "the server is stopping"]
    answer = service.request("GET", "/v2/health/ready")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json() == {
        "ready": False,
        "error": "not ready: model 'a' is LOADING; the server is stopping",
        "reasons": ["model 'a' is LOADING", "the server is stopping"],
    }
    assert service.request("GET", "/v2/health/live").status_code == 200


def test_metrics_are_in_prometheus_form(service: Service) -> None:
    series = service.metrics.of_version("sum", 3)
    series.batch(n_rows=5, bucket=8, compute_s=0.001)
    series.queue_depth(17)
    service.metrics.build_ended("available")
    answer = service.request("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    for line in (
        'rowwise_rows_total{entry="predict",model="sum",version="3"} 5.0',
        'rowwise_batches_total{entry="predict",model="sum",version="3"} 1.0',
        'rowwise_batch_rows_bucket{entry="predict",le="8.0",model="sum",version="3"} 1.0',
        'rowwise_batch_padding_rows_sum{entry="predict",model="sum",version="3"} 3.0',
        'rowwise_compute_seconds_bucket{entry="predict",le="0.001",model="sum",version="3"} 1.0',
        'rowwise_queue_rows{entry="predict",model="sum",version="3"} 17.0',
        'rowwise_builds_total{result="available"} 1.0',
    ):
        assert line in answer.text.splitlines()


def test_names_that_strangers_ask_for_make_no_series(service: Service) -> None:
    service.predict({"instances": [[1, 2, 3]]}, "/v1/models/first:predict")
    before = service.request("GET", "/metrics").text
    for name in ("nobody", "else", "sum%0Ax"):
        service.predict({"instances": [[1, 2, 3]]}, f"/v1/models/{name}:predict")
        service.request("GET", f"/v1/models/{name}")
    after = service.request("GET", "/metrics").text
    assert 'rowwise_requests_total{code="404",entry="",model="",reason="ModelNotFound",version=""} 4.0' in after
    assert "nobody" not in after
    assert len(after.splitlines()) == len(before.splitlines())
