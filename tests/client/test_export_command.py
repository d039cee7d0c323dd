"""``rowwise export`` writes what TensorFlow loads by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from rowwise.cli import app
from server.build.compile import build_artifact
from server.build.declaration import declaration_of_function
from server.spec import ModelSpec
from server.store import Store

SOURCE = """\
import tensorflow as tf

INPUTS = {"x": tf.TensorSpec([4], tf.float32)}
WEIGHTS = tf.Variable([[1.0, 2.0]] * 4)
SPEC = {"derivatives": [{"kind": "jacobian"}]}


def predict(x):
    return {"scores": tf.tensordot(x, WEIGHTS, 1)}
"""
X = np.arange(20, dtype=np.float32).reshape(5, 4)
WEIGHTS = tf.Variable([[1.0, 2.0]] * 4)


@pytest.fixture
def run() -> Callable[..., Any]:
    runner = CliRunner(env={"COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1", "TF_CPP_MIN_LOG_LEVEL": "2"})
    return lambda *arguments: runner.invoke(app, ["export", *map(str, arguments)])


def check_any_rows(directory: Path) -> None:
    loaded = tf.saved_model.load(str(directory))
    for n in (0, 1, 2, 3, 5):
        got = loaded.signatures["serving_default"](x=tf.constant(X[:n]))
        np.testing.assert_allclose(got["scores"], X[:n].sum(axis=1)[:, None] * [1.0, 2.0])


def check_jacobian(directory: Path) -> None:
    loaded = tf.saved_model.load(str(directory))
    (jacobian,) = loaded.signatures["jacobian"](x=tf.constant(X)).values()
    one = np.array([[1] * 4, [2] * 4], np.float32)
    np.testing.assert_array_equal(jacobian, np.broadcast_to(one, (5, 2, 4)))


def test_a_function_is_exported(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "scorer.py").write_text(SOURCE)
    answer = run(f"{tmp_path}/scorer.py:predict", tmp_path / "out", "--bucket", 1, "--bucket", 3)
    assert answer.exit_code == 0, answer.output
    assert answer.stdout == f"wrote {tmp_path}/out\n"
    check_any_rows(tmp_path / "out")
    check_jacobian(tmp_path / "out")

    again = run(f"{tmp_path}/scorer.py:predict", tmp_path / "out", "--bucket", 1)
    assert again.exit_code == 1
    assert "is not empty" in again.stderr


def test_a_model_in_a_store_is_exported_while_a_server_has_it_open(run: Callable[..., Any], tmp_path: Path) -> None:
    with Store.open(tmp_path / "store") as store:
        unknown = run("scorer", tmp_path / "out", "--store", tmp_path / "store")
        assert unknown.exit_code == 1
        assert "model 'scorer' is unknown" in unknown.stderr

        version = store.create_version("scorer", {}).version
        spec = {"inputs": {"x": {"dtype": "float32", "shape": [4]}}, "buckets": [1, 3]}
        spec["derivatives"] = [{"kind": "jacobian", "wrt": ["x"]}]
        build_artifact(
            declaration_of_function(
                lambda x: {"scores": tf.tensordot(x, WEIGHTS, 1)}, None, ModelSpec.model_validate(spec)
            ),
            store.staging_dir("scorer", version),
            name="scorer",
            version=version,
            report=lambda stage, done, total: None,
        )
        store.commit("scorer", version)
        store.activate("scorer", version)
        answer = run("scorer", tmp_path / "out", "--store", tmp_path / "store")
        assert answer.exit_code == 0, answer.output
        missing = run("scorer", tmp_path / "other", "--store", tmp_path / "store", "--version", 7)
        assert "has no version 7" in missing.stderr
    check_any_rows(tmp_path / "out")
    check_jacobian(tmp_path / "out")


def test_options_of_a_registration_do_not_go_with_a_stored_model(run: Callable[..., Any], tmp_path: Path) -> None:
    answer = run("scorer", tmp_path / "out", "--store", tmp_path, "--bucket", 2)
    assert answer.exit_code == 2
    assert "without options" in answer.stderr
    assert "goes with --store" in run("a.py:b", tmp_path / "out", "--version", 2).stderr
