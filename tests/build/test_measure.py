"""Which mode a bucket runs in, from scripted measurements; and that measuring measures."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from server.artifact import ExecutionMode
from server.build.errors import BuildFailed
from server.build.forms import Form
from server.build.measure import Candidate, Measurement, measure, modes, pick
from vectorizer import Bucket

BUCKET = Bucket(rows=2)
SINGLE = ExecutionMode(compiler="graph", executor="single_threaded", intra_op_threads=1)
XLA = ExecutionMode(compiler="xla", executor="single_threaded", intra_op_threads=1)
DEFAULT = ExecutionMode(compiler="graph", executor="default", intra_op_threads=1)
PARALLEL = ExecutionMode(compiler="graph", executor="default", intra_op_threads=2)


def took(rows: int, mode: ExecutionMode, *times_s: float, error: str | None = None) -> Measurement:
    candidate = Candidate(bucket=Bucket(rows=rows), mode=mode)
    return Measurement(candidate=candidate, times_s=list(times_s), error=error)


def chosen(*measurements: Measurement) -> dict[int, ExecutionMode]:
    return {bucket.rows: entry.candidate.mode for bucket, entry in pick(measurements).items()}


def test_fastest_mode_of_each_bucket_is_chosen_by_its_median() -> None:
    assert chosen(
        took(1, SINGLE, 1.0, 1.1, 9.0),
        took(1, XLA, 1.2, 1.2, 1.2),
        took(8, SINGLE, 4.0, 4.0, 4.0),
        took(8, XLA, 0.1, 2.0, 2.0),
    ) == {1: SINGLE, 8: XLA}


def test_more_threads_must_pay_for_the_cores_that_they_take() -> None:
    assert chosen(took(64, SINGLE, 1.4), took(64, PARALLEL, 1.0)) == {64: SINGLE}
    assert chosen(took(64, SINGLE, 1.6), took(64, PARALLEL, 1.0)) == {64: PARALLEL}


def test_partitioned_loops_must_gain_more_than_the_examples_at_hand_may_tell() -> None:
    partitioned = replace(SINGLE, control_flow="partitioned")
    assert chosen(took(64, SINGLE, 1.04), took(64, partitioned, 1.0)) == {64: SINGLE}
    assert chosen(took(64, SINGLE, 1.06), took(64, partitioned, 1.0)) == {64: partitioned}


def test_a_second_session_must_pay_for_its_copy_of_the_variables() -> None:
    common = [took(rows, SINGLE, 1.0) for rows in (1, 2)]
    assert chosen(*common, took(4, SINGLE, 1.05), took(4, DEFAULT, 1.0)) == {1: SINGLE, 2: SINGLE, 4: SINGLE}
    assert chosen(*common, took(4, SINGLE, 1.2), took(4, DEFAULT, 1.0)) == {1: SINGLE, 2: SINGLE, 4: DEFAULT}


def test_mode_that_fails_is_not_chosen() -> None:
    assert chosen(took(1, SINGLE, 5.0), took(1, XLA, error="no kernel")) == {1: SINGLE}


def test_bucket_that_runs_in_no_mode_is_named_with_every_reason() -> None:
    with pytest.raises(BuildFailed, match=r"bucket 8 runs in no execution mode.*no kernel.*no memory"):
        pick([took(8, SINGLE, error="no kernel"), took(8, XLA, error="no memory")])


def test_one_core_has_no_parallel_modes() -> None:
    assert all(mode.intra_op_threads == 1 for mode in modes(1))
    assert {mode.intra_op_threads for mode in modes(4)} == {1, 4}


@pytest.fixture
def saved_model(tmp_path: Path) -> Path:
    root = tf.Module()
    spec = tf.TensorSpec([2, 3], tf.float32, name="x")
    fine = tf.function(lambda x: {"y": x + 1.0}).get_concrete_function(x=spec)
    fails = tf.function(lambda x: {"y": tf.debugging.check_numerics(x / 0.0, "never")}).get_concrete_function(x=spec)
    tf.saved_model.save(
        root,
        str(tmp_path / "m"),
        signatures={Form(BUCKET, "graph").signature: fine, Form(BUCKET, "xla").signature: fails},
    )
    return tmp_path / "m"


def test_every_signature_is_timed_and_one_that_fails_says_why(saved_model: Path) -> None:
    seen: list[tuple[int, int]] = []
    began_s = time.perf_counter()
    results = measure(
        dict.fromkeys((Form(BUCKET, "graph"), Form(BUCKET, "xla")), saved_model),
        feeds=lambda bucket: {"x": np.ones((bucket.rows, 3), np.float32)},
        outputs=["y"],
        progress=lambda done, total: seen.append((done, total)),
    )
    took_s = time.perf_counter() - began_s
    graph = [entry for entry in results if entry.candidate.mode.compiler == "graph"]
    xla = [entry for entry in results if entry.candidate.mode.compiler == "xla"]
    assert "single_threaded" in {entry.candidate.mode.executor for entry in graph}
    assert all(entry.error is None and 0 < min(entry.times_s) <= entry.cost_s for entry in graph)
    assert sum(sum(entry.times_s) for entry in graph) < took_s
    assert all(entry.error and "InvalidArgument" in entry.error and not entry.times_s for entry in xla)
    assert xla[0].to_json()["cost_s"] is None
    assert graph[0].to_json()["rounds"] == len(graph[0].times_s) >= 5
    assert seen[-1][0] == seen[-1][1]
    assert seen == sorted(seen)


def test_compiler_that_loses_at_both_ends_is_not_tried_in_between(tmp_path: Path) -> None:
    """Compiling is most of a deep network's build. Here the signatures for XLA are made slow instead."""
    forms = {}
    for rows in (1, 2, 4, 8):
        spec = tf.TensorSpec([rows, 3], tf.float32, name="x")
        forms[Form(Bucket(rows=rows), "graph")] = tf.function(lambda x: {"y": x + 1.0}).get_concrete_function(x=spec)
        forms[Form(Bucket(rows=rows), "xla")] = tf.function(
            lambda x: {"y": tf.while_loop(lambda i, y: i < 2_000, lambda i, y: (i + 1, y + 1.0), (0, x))[1]}
        ).get_concrete_function(x=spec)
    signatures = {form.signature: function for form, function in forms.items()}
    tf.saved_model.save(tf.Module(), str(tmp_path / "m"), signatures=signatures)
    results = measure(
        dict.fromkeys(forms, tmp_path / "m"),
        feeds=lambda bucket: {"x": np.ones((bucket.rows, 3), np.float32)},
        outputs=["y"],
        progress=lambda done, total: None,
    )
    xla = {entry.candidate.bucket.rows: entry for entry in results if entry.candidate.mode.compiler == "xla"}
    assert all(xla[rows].error is None and xla[rows].times_s for rows in (1, 8))
    for rows in (2, 4):
        assert "not tried: at both ends XLA took" in (xla[rows].error or "")
        assert not xla[rows].times_s
    assert {entry.candidate.mode.compiler for entry in pick(results).values()} == {"graph"}


def test_calls_of_seconds_are_timed_three_times(tmp_path: Path) -> None:
    spec = tf.TensorSpec([2, 3], tf.float32, name="x")
    fine = tf.function(lambda x: {"y": x + 1.0}).get_concrete_function(x=spec)
    tf.saved_model.save(tf.Module(), str(tmp_path / "m"), signatures={Form(BUCKET, "graph").signature: fine})
    seconds = itertools.count(step=10.0)
    results = measure(
        {Form(BUCKET, "graph"): tmp_path / "m"},
        feeds=lambda bucket: {"x": np.ones((bucket.rows, 3), np.float32)},
        outputs=["y"],
        progress=lambda done, total: None,
        clock=lambda: next(seconds),
    )
    assert {tuple(entry.times_s) for entry in results} == {(10.0, 10.0, 10.0)}
