"""Artifacts that are made at once: models that multiply by a number."""

from __future__ import annotations

import json
from pathlib import Path

import tensorflow as tf

from server.artifact import CERTIFICATE_FILE, COSTS_FILE, SAVED_MODEL_DIR, CompiledGraph, ExecutionMode, Manifest
from server.signature import ModelSignature, TensorSignature

__all__ = ["make_artifact"]

SIGNATURE = ModelSignature(
    inputs=(TensorSignature(name="x", dtype="float32", shape=()),),
    outputs=(TensorSignature(name="y", dtype="float32", shape=()),),
)
MODE = ExecutionMode(compiler="graph", executor="single_threaded", intra_op_threads=1)


def make_artifact(path: Path, factor: int) -> None:
    """Write into a directory what a builder would have made of a function that multiplies by ``factor``."""
    graphs = {
        f"predict_{rows}": tf.function(lambda x: {"y": x * float(factor)}).get_concrete_function(
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
