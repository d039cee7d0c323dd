"""Derivatives in an artifact: further entry points, each with its signature, graphs, costs and certificate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from server.artifact import Manifest
from server.build.compile import build_artifact
from server.build.declaration import declaration_of_function
from server.engine import LoadedModel
from server.spec import ModelSpec

INPUTS = {"x": {"dtype": "float32", "shape": [3]}}


def cubes(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"y": x**3, "total": tf.reduce_sum(x**3)}


def test_artifact_answers_the_declared_derivatives(tmp_path: Path) -> None:
    spec = ModelSpec.model_validate(
        {
            "inputs": INPUTS,
            "buckets": [1, 2],
            "derivatives": [{"kind": "jacobian", "output": "y", "wrt": "x"}, {"kind": "hessian"}],
        }
    )
    stages: dict[str, None] = {}
    manifest = build_artifact(
        declaration_of_function(cubes, None, spec),
        tmp_path,
        name="cubes",
        version=1,
        report=lambda stage, done, total: stages.setdefault(stage),
    )
    assert Manifest.read(tmp_path) == manifest
    assert list(stages) == ["trace", "vectorize", "check", "derive", "measure", "write"]
    assert {name: [graph.rows for graph in graphs] for name, graphs in manifest.entries.items()} == {
        "predict": [1, 2],
        "jacobian": [1, 2],
        "hessian": [1, 2],
    }
    jacobian = manifest.derivatives["jacobian"]
    assert (jacobian.kind, jacobian.output, jacobian.wrt) == ("jacobian", "y", ("x",))
    assert [(tensor.name, tensor.shape) for tensor in jacobian.signature.outputs] == [("x", (3, 3))]
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert [part["rows"] for part in certificate["derivatives"]["hessian"]["parity"]] == [1, 2]
    assert json.loads((tmp_path / "costs.json").read_text())["entries"].keys() == manifest.entries.keys()

    loaded = LoadedModel.load(tmp_path)
    x = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]], np.float32)
    for entry, want in (("jacobian", 3.0 * x**2), ("hessian", 6.0 * x)):
        (got,) = answers(loaded, entry, x)
        np.testing.assert_allclose(got, want[:, :, None] * np.eye(3), rtol=1e-5)
    loaded.close()


def answers(loaded: LoadedModel, entry: str, x: np.ndarray) -> Any:
    """Run a full batch past the queue, as the engine's thread does."""
    runner = loaded.groups[entry, ()]
    return runner._calls[len(x)](x)


@pytest.mark.parametrize(
    ("derivative", "says"),
    [
        ({"kind": "vjp"}, "gradient"),
        ({"kind": "jacobian", "max_parallel": 0}, "greater than or equal to 1"),
        ({"kind": "jacobian", "name": "predict"}, "own outputs"),
        ({"kind": "jacobian", "name": "a/b"}, "pattern"),
        ({"kind": "jacobian", "of": "y"}, "Extra inputs"),
    ],
)
def test_malformed_declarations_are_refused(derivative: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ModelSpec.model_validate({"derivatives": [derivative]})


def test_manifests_of_before_there_were_derivatives_are_read() -> None:
    signature = {"inputs": [], "outputs": [], "axes": []}
    document = {"format_version": 1, "name": "m", "version": 1, "signature": signature, "entries": {}}
    manifest = Manifest.from_json({**document, "tensorflow_version": "2.21.0", "built_at": ""})
    assert manifest.derivatives == {}
