"""A declared function becomes an artifact that answers as the function does."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from server.artifact import ExecutionMode, Manifest
from server.batching import Batch, CostTable, ExampleFailed, Group, Item
from server.build import candidates
from server.build import compile as compile_
from server.build.compile import build_artifact
from server.build.declaration import declaration_of_function
from server.build.entry_points import paying
from server.build.forms import forms_of, save_forms
from server.build.measure import Candidate, Measurement
from server.build.served_check import check_served
from server.engine import LoadedModel
from server.graph_checks import GraphLimits
from server.graph_checks.check import GraphSize, check_saved_model
from server.graph_checks.errors import GraphTooLarge
from server.protocol import Rows
from server.spec import ModelSpec
from vectorizer import Bucket, ParityError, VectorizerError, vectorize


class PlainModule:
    """A module that says nothing of its functions."""


def build(
    function: Callable[..., Any], inputs: Mapping[str, Any], output: Path, **options: Any
) -> tuple[Manifest, list[tuple[str, int, int]]]:
    output.mkdir(exist_ok=True)
    reports: list[tuple[str, int, int]] = []
    spec = ModelSpec.model_validate({"inputs": inputs, "buckets": [1, 3], **options})
    manifest = build_artifact(
        declaration_of_function(function, PlainModule, spec),
        output,
        name="small",
        version=7,
        report=lambda stage, done, total: reports.append((stage, done, total)),
    )
    return manifest, reports


def run(loaded: LoadedModel, rows: Rows, bucket: int, lengths: tuple[int, ...] = ()) -> list[np.ndarray]:
    runner = loaded.groups["predict", lengths]
    group = Group("test", CostTable(runner.costs_s), label="model 'small'")
    item = Item(group, rows.n, rows, arrived_s=0.0, deadline_s=None, on_done=lambda item: None)
    batch = Batch(
        1, group, bucket, [(item, 0, rows.n)], n_rows=rows.n, reason="test", dispatched_s=0.0, predicted_s=math.nan
    )
    return [output[: rows.n] for output in runner.run(batch)]


WEIGHTS = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)


def test_small_function_is_built_and_loaded_and_answers_each_example_as_it_does(tmp_path: Path) -> None:
    weights = tf.Variable(WEIGHTS)

    def predict(x: tf.Tensor, name: tf.Tensor) -> dict[str, tf.Tensor]:
        scores = tf.linalg.matvec(weights, x, transpose_a=True)
        if scores[0] > 0:
            scores = scores * 2.0
        return {"scores": scores, "name": name, "x": x}

    manifest, reports = build(
        predict, {"x": {"dtype": "float32", "shape": [4]}, "name": {"dtype": "string", "shape": []}}, tmp_path
    )
    assert Manifest.read(tmp_path) == manifest
    assert (manifest.name, manifest.version) == ("small", 7)
    assert [graph.rows for graph in manifest.entries["predict"]] == [1, 3]
    assert {entry.name for entry in tmp_path.iterdir()} == {
        "model.json",
        "certificate.json",
        "costs.json",
        "saved_model",
    }

    loaded = LoadedModel.load(tmp_path)
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    names = np.array([b"a\0", b"", b"longer"], object)
    by_bucket = {
        bucket: run(loaded, Rows(min(bucket, 2), (x[:bucket][:2], names[:bucket][:2])), bucket) for bucket in (1, 3)
    }
    loaded.close()
    for outputs in by_bucket.values():
        for row in range(len(outputs[0])):
            want = predict(tf.constant(x[row]), tf.constant(names[row]))
            np.testing.assert_allclose(outputs[0][row], want["scores"], rtol=1e-5)
            assert outputs[1][row] == names[row]
            assert outputs[2][row].tobytes() == x[row].tobytes()

    stages = [stage for stage, _, _ in reports]
    assert list(dict.fromkeys(stages)) == ["trace", "vectorize", "check", "measure", "write"]
    assert all(0 <= done <= total for _, done, total in reports)
    costs = json.loads((tmp_path / "costs.json").read_text())["entries"]["predict"]
    chosen = [entry for entry in costs if entry["chosen"]]
    assert [entry["rows"] for entry in chosen] == [1, 3]
    assert all(entry["cost_s"] > 0 for entry in chosen)
    memory = json.loads((tmp_path / "costs.json").read_text())["memory"]
    assert memory["variables_bytes"] == WEIGHTS.nbytes
    assert memory["resident_bytes"] >= 0
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert certificate["summary"]["buckets_checked"] == 2
    groups = manifest.bitwise_groups["predict"]
    assert sorted(bucket for group in groups for bucket in group) == [(1,), (3,)]
    assert certificate["bitwise_groups"] == [[list(bucket) for bucket in group] for group in groups]


def test_loop_that_rows_leave_early_is_measured_masked_and_partitioned(tmp_path: Path) -> None:
    weights = tf.Variable(np.random.default_rng(0).normal(0, 0.1, (16, 16)).astype(np.float32))

    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(tf.minimum(n, 9)):
            x = tf.tanh(tf.tensordot(x, weights, 1))
        return x

    inputs = {"x": {"dtype": "float32", "shape": [16]}, "n": {"dtype": "int32", "shape": []}}
    manifest, _ = build(predict, inputs, tmp_path, buckets=(1, 32))
    costs = json.loads((tmp_path / "costs.json").read_text())["entries"]["predict"]
    listed = {(entry["rows"], entry["compiler"], entry["control_flow"]) for entry in costs}
    both = {(32, compiler, "partitioned") for compiler in ("graph", "xla")}
    assert listed == both | {(rows, compiler, "masked") for rows in (1, 32) for compiler in ("graph", "xla")}
    # XLA that was slow at both ends is not tried for the third form: how slow it is depends on what else runs here.
    untried = [entry for entry in costs if entry["error"] is not None]
    assert all(entry["compiler"] == "xla" and entry["error"].startswith("not tried: at both ends") for entry in untried)
    assert len(untried) <= 1
    for graph in manifest.entries["predict"]:
        (winner,) = (entry for entry in costs if entry["chosen"] and entry["rows"] == graph.rows)
        assert winner["control_flow"] == graph.mode.control_flow
        assert ("partitioned" in graph.signature) == (graph.mode.control_flow == "partitioned")


def test_variable_length_is_built_for_every_length_bucket(tmp_path: Path) -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"doubled": x * 2.0, "mean": tf.reduce_sum(x) / tf.cast(tf.maximum(n, 1), tf.float32)}

    manifest, _ = build(
        predict,
        {
            "x": {"dtype": "float32", "shape": [None], "max": 5, "length_input": "n", "lengths": [2, 5]},
            "n": {"dtype": "int64", "shape": []},
        },
        tmp_path,
    )
    assert [(graph.rows, graph.lengths) for graph in manifest.entries["predict"]] == [
        (1, (2,)),
        (1, (5,)),
        (3, (2,)),
        (3, (5,)),
    ]
    assert [tensor.name for tensor in manifest.signature.inputs] == ["x"]
    assert manifest.signature.axes[0].length_dtype == "int64"
    loaded = LoadedModel.load(tmp_path)
    values = [np.arange(k, dtype=np.float32) for k in (0, 3, 5)]
    outputs = run(loaded, Rows(3, (values,), [(0,), (3,), (5,)]), 3, (5,))
    loaded.close()
    np.testing.assert_allclose(outputs[1], [0.0, 1.0, 2.0])
    np.testing.assert_allclose(outputs[0][1], [0, 2, 4, 0, 0])


def test_mode_that_answers_an_index_that_the_function_refuses_is_found_out(tmp_path: Path) -> None:
    """XLA takes the last entry of a table for any index past its end; the function raises."""
    table = tf.Variable(tf.reshape(tf.range(40.0), [10, 4]))
    inputs = {"i": {"dtype": "int32", "shape": []}}
    declaration = declaration_of_function(
        lambda i: tf.gather(table, i), PlainModule, ModelSpec.model_validate({"inputs": inputs})
    )
    vectorized = vectorize(declaration.function, inputs=declaration.inputs, buckets=(1, 3))
    forms = forms_of(vectorized)
    save_forms(vectorized, declaration, forms, tmp_path / "saved")

    def check(compiler: str) -> dict[Bucket, str]:
        mode = ExecutionMode(compiler=compiler, executor="single_threaded", intra_op_threads=1)
        return check_served(
            vectorized,
            tmp_path / "saved",
            dict.fromkeys(vectorized.graphs, mode),
            tolerance=None,
        ).unfaithful

    assert check("graph") == {}
    assert check("xla") == dict.fromkeys(vectorized.graphs, "it answers examples that the function refuses")


def test_served_model_refuses_an_index_that_the_function_refuses(tmp_path: Path) -> None:
    table = tf.Variable(tf.reshape(tf.range(40.0), [10, 4]))

    def predict(i: tf.Tensor) -> tf.Tensor:
        x = tf.gather(table, i)
        for _ in range(30):
            x = tf.square(x) * 0.1 + 0.2
        return x

    build(predict, {"i": {"dtype": "int32", "shape": []}}, tmp_path)
    loaded = LoadedModel.load(tmp_path)
    try:
        for bucket in (1, 3):
            with pytest.raises(ExampleFailed, match=r"indices\[0\] = 10"):
                run(loaded, Rows(1, (np.array([10], np.int32),)), bucket)
            run(loaded, Rows(1, (np.array([9], np.int32),)), bucket)
    finally:
        loaded.close()


def batch_of(loaded: LoadedModel, rows: Rows, bucket: int) -> Batch:
    group = Group("test", CostTable(loaded.groups["predict", ()].costs_s), label="model 'small'")
    item = Item(group, rows.n, rows, arrived_s=0.0, deadline_s=None, on_done=lambda item: None)
    spans = [(item, 0, rows.n)]
    return Batch(1, group, bucket, spans, n_rows=rows.n, reason="test", dispatched_s=0.0, predicted_s=math.nan)


def test_bad_row_gets_the_asserts_message_and_the_others_their_answers(tmp_path: Path) -> None:
    """An assert in the function was dropped, by pfor as by XLA: -1 was answered with -2."""

    def predict(x: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_greater(x, 0.0, message="not positive")
        return x * 2.0

    manifest, _ = build(predict, {"x": {"dtype": "float32", "shape": [2]}}, tmp_path, buckets=[4])
    assert {graph.mode.compiler for graph in manifest.entries["predict"]} == {"graph"}
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert certificate["not_for_xla"] == ["Assert"]
    loaded = LoadedModel.load(tmp_path)
    try:
        x = np.array([[1, 2], [3, -7], [5, 6], [-8, 1]], np.float32)
        batch = batch_of(loaded, Rows(4, (x,)), 4)
        runner = loaded.groups["predict", ()]
        with pytest.raises(ExampleFailed) as caught:
            runner.run(batch)
        (answers,), failed = runner.run_isolated(batch, caught.value)
        np.testing.assert_array_equal(answers[[0, 2]], x[[0, 2]] * 2.0)
        assert failed.errors.keys() == {1, 3}
        for row, values in ((1, "[3 -7]"), (3, "[-8 1]")):
            said = str(failed.errors[row])
            assert "assertion failed: [not positive]" in said
            assert values in said
    finally:
        loaded.close()


def test_seed_is_an_optional_input_and_decides_the_answer_at_every_bucket(tmp_path: Path) -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        return x + tf.random.uniform([4])

    manifest, _ = build(predict, {"x": {"dtype": "float32", "shape": [4]}}, tmp_path)
    again = Manifest.read(tmp_path).signature
    assert [(tensor.name, tensor.dtype, tensor.is_optional) for tensor in again.inputs] == [
        ("x", "float32", False),
        ("seed", "int64", True),
    ]
    assert again == manifest.signature
    loaded = LoadedModel.load(tmp_path)
    try:
        x = np.ones((3, 4), np.float32)
        (together,) = run(loaded, Rows(3, (x, np.array([7, 8, 7]))), 3)
        np.testing.assert_array_equal(together[0], together[2])
        for row, seed in enumerate([7, 8]):
            (alone,) = run(loaded, Rows(1, (x[:1], np.array([seed]))), 1)
            np.testing.assert_array_equal(alone[0], together[row])
    finally:
        loaded.close()


def test_function_that_draws_random_numbers_is_refused_if_the_spec_says_so(tmp_path: Path) -> None:
    with pytest.raises(VectorizerError, match="RandomUniform"):
        build(lambda x: tf.nn.dropout(x, 0.5), {"x": {"dtype": "float32", "shape": [4]}}, tmp_path, random="refuse")


def test_names_that_python_uses_are_fine_for_inputs_and_outputs(tmp_path: Path) -> None:
    def predict(graph: tf.Tensor, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"class probabilities": graph + inputs, "graph": graph}

    manifest, _ = build(
        predict,
        {"graph": {"dtype": "float32", "shape": [2]}, "inputs": {"dtype": "float32", "shape": [2]}},
        tmp_path,
        buckets=[2],
    )
    assert [tensor.name for tensor in manifest.signature.outputs] == ["class probabilities", "graph"]
    loaded = LoadedModel.load(tmp_path)
    outputs = run(loaded, Rows(1, (np.ones((1, 2), np.float32), np.ones((1, 2), np.float32))), 2)
    loaded.close()
    assert outputs[0].tolist() == [[2.0, 2.0]]


def test_every_dtype_comes_through_an_artifact(tmp_path: Path) -> None:
    dtypes = ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "float64"]
    inputs = {f"x{index}": {"dtype": dtype, "shape": [2]} for index, dtype in enumerate(dtypes)}
    build(lambda x0, x1, x2, x3, x4, x5, x6: [x0, x1, x2, x3, x4, x5, x6], inputs, tmp_path, buckets=[2])
    loaded = LoadedModel.load(tmp_path)
    sent = tuple(np.array([[0, 1]]).astype(tf.as_dtype(dtype).as_numpy_dtype) for dtype in dtypes)
    outputs = run(loaded, Rows(1, sent), 2)
    loaded.close()
    for got, want in zip(outputs, sent, strict=True):
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()


def measured(rows: int, cost_s: float) -> Measurement:
    mode = ExecutionMode(compiler="graph", executor="default", intra_op_threads=1)
    return Measurement(candidate=Candidate(bucket=Bucket(rows=rows), mode=mode), times_s=[cost_s])


@pytest.mark.parametrize(
    ("costs", "kept"),
    [
        ({1: 1.0, 2: 1.1, 4: 1.2, 8: 1.4}, [1, 2, 4, 8]),
        ({1: 1.0, 2: 1.1, 4: 2.2, 8: 4.5}, [1, 2]),
        ({1: 1.0, 2: 2.0, 4: 4.0}, [1]),
        # A size in between that doesn't pay stays, as the one above it does.
        ({1: 1.0, 2: 2.0, 4: 2.1}, [1, 2, 4]),
        ({8: 1.0}, [8]),
        # Rows that cost the same in any graph, but share what a batch costs beside it.
        ({16: 2.7e-3, 32: 5.4e-3, 64: 10.8e-3}, [16, 32, 64]),
        ({16: 27e-3, 32: 54e-3}, [16]),
    ],
)
def test_largest_buckets_that_bring_nothing_are_dropped_when_the_builder_chooses(
    costs: dict[int, float], kept: list[int]
) -> None:
    chosen = paying({Bucket(rows=rows): measured(rows, cost_s) for rows, cost_s in costs.items()})
    assert [bucket.rows for bucket in chosen] == kept


def test_builder_chooses_among_powers_of_two_up_to_the_largest_batch(tmp_path: Path) -> None:
    manifest, _ = build(
        lambda x: x + 1.0, {"x": {"dtype": "float32", "shape": [2]}}, tmp_path, buckets="auto", max_batch=4
    )
    costs = json.loads((tmp_path / "costs.json").read_text())["entries"]["predict"]
    assert {entry["rows"] for entry in costs} == {1, 2, 4}
    assert {entry["rows"] for entry in costs if entry["chosen"]} == {
        graph.rows for graph in manifest.entries["predict"]
    }


def test_what_the_vectorizer_refuses_leaves_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(VectorizerError, match="NearestNeighbors"):
        build(
            lambda x: tf.raw_ops.NearestNeighbors(points=x, centers=x, k=1)[1],
            {"x": {"dtype": "float32", "shape": [2, 2]}},
            tmp_path,
        )
    assert list(tmp_path.iterdir()) == []


def test_function_that_depends_on_padding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="length_input"):
        build(tf.reduce_mean, {"input_tensor": {"dtype": "float32", "shape": [None], "max": 4}}, tmp_path)


def test_model_for_invariant_mode_is_built_of_buckets_that_agree_to_the_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    hidden, last = (tf.Variable(rng.normal(size=shape).astype(np.float32)) for shape in ((64, 100), (100, 3)))

    def predict(x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.matvec(last, tf.tanh(tf.linalg.matvec(hidden, x, transpose_a=True)), transpose_a=True)

    inputs = {"x": {"dtype": "float32", "shape": [64]}}
    manifest, _ = build(predict, inputs, tmp_path, buckets=[1, 2, 5, 8], invariant=True)
    assert manifest.invariant
    served = [graph.rows for graph in manifest.entries["predict"]]
    (cost,) = json.loads((tmp_path / "costs.json").read_text())["invariant"]["predict"]
    assert json.loads((tmp_path / "certificate.json").read_text())["invariant"] == [cost]
    assert cost["lengths"] == []
    assert set(cost["rows"]) <= set(served)
    assert 0.0 < cost["throughput_share"] <= 1.06

    loaded = LoadedModel.load(tmp_path)
    assert loaded.invariant_buckets == {"predict": [(rows,) for rows in cost["rows"]]}
    examples = rng.normal(size=(40, 64)).astype(np.float32)
    answers: dict[int, set[bytes]] = {}
    for rows in cost["rows"]:
        for _ in range(20):
            numbers = rng.integers(0, 40, rng.integers(1, rows + 1))
            (scores,) = run(loaded, Rows(len(numbers), (examples[numbers],)), rows)
            for number, answer in zip(numbers, scores, strict=True):
                answers.setdefault(int(number), set()).add(answer.tobytes())
    loaded.close()
    assert all(len(different) == 1 for different in answers.values())


def test_what_serves_is_refused_if_it_is_too_large_though_each_part_of_the_candidates_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tf.Variable(tf.ones([4]))
    monkeypatch.setattr(candidates, "_FORMS_EACH", 2)
    monkeypatch.setattr(candidates, "_MAX_FILES", 100)
    sizes = []

    def check(path: Path, *, serves: bool) -> GraphSize:
        size = check_saved_model(path, limits=GraphLimits(max_functions=10), serves=serves)
        sizes.append(size.n_functions)
        return size

    for module in (candidates, compile_):
        monkeypatch.setattr(module, "check_saved_model", check)
    with pytest.raises(GraphTooLarge, match="register fewer buckets"):
        build(lambda x: x * weights, {"x": {"dtype": "float32", "shape": [4]}}, tmp_path, buckets=list(range(1, 9)))
    assert len(sizes) == 8, "every part passed"
