"""Exported SavedModels answer any number of rows as the function does, for whoever loads them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import one_by_one, spec
from vectorizer import Length, export_saved_model, vectorize
from vectorizer._pfor import SavedModelProto
from vectorizer.export import save_batched_graphs

RNG = np.random.default_rng(3)
WEIGHTS = tf.Variable(RNG.normal(size=(4, 3)).astype(np.float32), name="weights")
CLASSES = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1, 2], tf.int64), tf.constant(["a", "b", "c"])), "?"
)


def classify(x: tf.Tensor) -> dict[str, tf.Tensor]:
    scores = tf.tensordot(x, WEIGHTS, 1)
    if scores[0] > 0:
        scores = scores * 2.0
    return {"scores": scores, "label": CLASSES.lookup(tf.argmax(scores))}


def running_mean(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
    total = tf.cumsum(x)
    return {"means": total / tf.range(1.0, tf.cast(tf.shape(x)[0], tf.float32) + 1.0), "last": total[n - 1]}


def load_elsewhere(path: Path, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Load and call in a fresh process where our packages can't be imported."""
    script = Path(__file__).with_name("exporting.py")
    request = json.dumps({"path": str(path), "calls": calls})
    done = subprocess.run(
        [sys.executable, "-P", str(script)], input=request, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def signatures(path: Path) -> dict[str, Any]:
    meta_graph = SavedModelProto.FromString((path / "saved_model.pb").read_bytes()).meta_graphs[0]
    return {name: each for name, each in meta_graph.signature_def.items() if not name.startswith("__")}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "model"
    export_saved_model(vectorize(classify, inputs={"x": spec(4)}, buckets=(1, 4)), path)
    return path


def test_exported_model_takes_any_number_of_rows_without_us(exported: Path) -> None:
    x = RNG.normal(size=(11, 4)).astype(np.float32)
    n_rows = (1, 2, 4, 7, 11)
    calls = [("serving_default", {"x": x[:n].tolist()}) for n in n_rows]
    found = load_elsewhere(exported, [*calls, ("bucket_4", {"x": x[:4].tolist()})])
    assert found["signatures"] == ["bucket_1", "bucket_4", "serving_default"]
    expected = one_by_one(classify, {"x": x})
    for n, got in zip((*n_rows, 4), found["answers"], strict=True):
        np.testing.assert_allclose(got["scores"], [row[0] for row in expected[:n]], rtol=1e-5)
        assert got["label"] == [row[1].item().decode() for row in expected[:n]]


def test_signatures_are_those_that_tensorflow_serving_predicts_with(exported: Path) -> None:
    found = signatures(exported)
    assert found.keys() == {"serving_default", "bucket_1", "bucket_4"}
    for name, rows in (("serving_default", -1), ("bucket_1", 1), ("bucket_4", 4)):
        definition = found[name]
        assert definition.method_name == "tensorflow/serving/predict"
        assert [dim.size for dim in definition.inputs["x"].tensor_shape.dim] == [rows, 4]
        assert [dim.size for dim in definition.outputs["scores"].tensor_shape.dim] == [rows, 3]
        assert definition.outputs["label"].dtype == tf.string.as_datatype_enum
    names = [name for name, _ in tf.train.list_variables(str(exported / "variables" / "variables"))]
    assert len([name for name in names if "VARIABLE_VALUE" in name]) == 1, "variables are stored once"

    loaded = tf.saved_model.load(str(exported))
    nothing = loaded.signatures["serving_default"](x=tf.zeros([0, 4]))
    assert nothing["scores"].shape == (0, 3)
    assert nothing["label"].shape == (0,)


def test_exported_model_of_variable_length_pads_and_cuts(tmp_path: Path) -> None:
    path = tmp_path / "exported"
    vectorized = vectorize(
        running_mean,
        inputs={"x": spec(None), "n": spec(dtype=tf.int32)},
        buckets=(2,),
        lengths={"x": Length(max=6, buckets=(3, 6), length_input="n")},
        examples=[{"x": np.arange(k, dtype=np.float32)} for k in (1, 3, 5)],
    )
    export_saved_model(vectorized, path)
    assert signatures(path).keys() == {"serving_default", "bucket_2x3", "bucket_2x6"}
    x = RNG.normal(size=(5, 5)).astype(np.float32)
    lengths = [5, 1, 3, 2, 5]
    calls = [
        ("serving_default", {"x": x[:n, :width], "n": np.minimum(lengths[:n], width).astype(np.int32)})
        for n, width in ((1, 5), (2, 2), (5, 5))
    ]
    loaded = tf.saved_model.load(str(path))
    answers = [loaded.signatures[name](x=tf.constant(given["x"]), n=tf.constant(given["n"])) for name, given in calls]
    for (n, width), got in zip(((1, 5), (2, 2), (5, 5)), answers, strict=True):
        want = np.cumsum(x[:n, :width], axis=1)
        np.testing.assert_allclose(got["means"], want / np.arange(1, width + 1), rtol=1e-5)
        last = [want[row, min(lengths[row], width) - 1] for row in range(n)]
        np.testing.assert_allclose(got["last"], last, rtol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than 6"):
        loaded.signatures["serving_default"](x=tf.zeros([1, 7]), n=tf.constant([1]))


def test_results_of_differing_sizes_are_padded_with_their_sizes_beside(tmp_path: Path) -> None:
    vectorized = vectorize(lambda x: {"kept": tf.boolean_mask(x, x > 0)}, inputs={"x": spec(4)}, buckets=(2,))
    export_saved_model(vectorized, tmp_path / "exported")
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    got = loaded.signatures["serving_default"](x=tf.constant(x))
    (lengths,) = (value.numpy() for name, value in got.items() if name != "kept")
    for row, kept, length in zip(x, got["kept"].numpy(), lengths, strict=True):
        np.testing.assert_array_equal(kept[:length], row[row > 0])


def test_directory_that_holds_something_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("")
    with pytest.raises(ValueError, match="is not empty"):
        save_batched_graphs({}, tmp_path)
