"""Artifacts that lie ready, and servers over them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf

from server.artifact import CERTIFICATE_FILE, COSTS_FILE, SAVED_MODEL_DIR, CompiledGraph, ExecutionMode, Manifest
from server.signature import ModelSignature, TensorSignature
from tests.catalog.world import Server

SIGNATURE = ModelSignature(
    inputs=(TensorSignature(name="x", dtype="float32", shape=()),),
    outputs=(TensorSignature(name="y", dtype="float32", shape=()),),
)
MODE = ExecutionMode(compiler="graph", executor="single_threaded", intra_op_threads=1)


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that multiply by 1, 2 and 3, and one that TensorFlow can't load."""
    made = {}
    for factor in (1, 2, 3):
        path = tmp_path_factory.mktemp(f"times{factor}")
        graphs = {
            f"predict_{rows}": tf.function(lambda x, factor=factor: {"y": x * float(factor)}).get_concrete_function(
                x=tf.TensorSpec([rows], tf.float32, name="x")
            )
            for rows in (1, 4)
        }
        tf.saved_model.save(tf.Module(), str(path / SAVED_MODEL_DIR), signatures=graphs)
        Manifest(
            name="",
            version=0,
            signature=SIGNATURE,
            entries={
                "predict": tuple(
                    CompiledGraph(rows=rows, lengths=(), signature=f"predict_{rows}", mode=MODE, cost_s=1e-4)
                    for rows in (1, 4)
                )
            },
            tensorflow_version=tf.__version__,
            built_at="2020-01-01T00:00:00+00:00",
        ).write(path)
        (path / CERTIFICATE_FILE).write_text(json.dumps({"factor": factor}))
        (path / COSTS_FILE).write_text(json.dumps({"costs": factor}))
        made[f"m:times{factor}"] = path
    damaged = tmp_path_factory.mktemp("damaged")
    manifest = Manifest.read(made["m:times1"])
    manifest.write(damaged)
    (damaged / SAVED_MODEL_DIR).mkdir()
    (damaged / SAVED_MODEL_DIR / "saved_model.pb").write_bytes(b"\xff")
    made["m:damaged"] = damaged
    return made


@pytest.fixture
def server(tmp_path: Path, artifacts: dict[str, Path]) -> Server:
    return Server(tmp_path / "store", artifacts)
