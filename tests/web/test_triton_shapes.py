"""What we tell of models beside what Triton 2.51 told of one (``triton_answers``): same keys, same types.

perf_analyzer and other tools read these. The answers were recorded from the server in NVIDIA's wheel, with a model of
one input and one output in its Python backend, after three requests of two rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.signature import ModelSignature, TensorSignature
from server.statistics import BatchTimes
from tests.web.scripted import Service
from tests.web.scripted_model import ScriptedModel

RECORDED = Path(__file__).parent / "triton_answers"
LIKE_TRITONS = ModelSignature(
    inputs=(TensorSignature(name="x", dtype="float32", shape=(3,)),),
    outputs=(TensorSignature(name="y", dtype="float32", shape=(1,)),),
)


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_text())


@pytest.fixture
def service(tmp_path: Path) -> Service:
    found = Service(tmp_path)
    model = found.catalog.serve(ScriptedModel("m", 1, signature=LIKE_TRITONS, batch_sizes=(1, 8)))
    model.statistics.by_rows[2] = BatchTimes()
    return found


def same_shape(ours: Any, theirs: Any, where: str = "") -> None:
    """Assert that every key of theirs is there, with a value of the same type, all the way down."""
    assert type(ours) is type(theirs), where
    if isinstance(theirs, dict):
        assert theirs.keys() <= ours.keys(), where
        for key, value in theirs.items():
            same_shape(ours[key], value, f"{where}/{key}")
    elif isinstance(theirs, list) and theirs:
        assert ours, where
        for value in ours:
            same_shape(value, theirs[0], f"{where}/0")


@pytest.mark.parametrize("path", ["/v2/models/m/stats", "/v2/models/stats", "/v2/models/m/versions/1/stats"])
def test_statistics_have_tritons_keys_and_types(service: Service, path: str) -> None:
    same_shape(service.request("GET", path).json(), recorded("statistics"))


def test_metadata_of_the_same_model_is_tritons_but_for_the_platform(service: Service) -> None:
    ours, theirs = service.request("GET", "/v2/models/m").json(), recorded("metadata")
    assert ours.pop("platform") != theirs.pop("platform")
    assert ours == theirs


def test_the_configuration_says_what_it_says_as_triton_does(service: Service) -> None:
    ours, theirs = service.request("GET", "/v2/models/m/config").json(), recorded("config")
    assert (ours["name"], ours["max_batch_size"]) == (theirs["name"], theirs["max_batch_size"])
    for side in ("input", "output"):
        (mine,), (his,) = ours[side], theirs[side]
        assert mine.items() <= his.items()
    assert {key: type(value) for key, value in ours["dynamic_batching"].items()}.items() <= {
        key: type(value) for key, value in theirs["dynamic_batching"].items()
    }.items()


def test_extensions_that_are_offered_have_tritons_names(service: Service) -> None:
    assert set(service.request("GET", "/v2").json()["extensions"]) <= set(recorded("server")["extensions"])
