"""Artifacts by hand: a SavedModel of a few lines and its manifest, without a builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from server.artifact import SAVED_MODEL_DIR, CompiledGraph, ExecutionMode, Manifest
from server.signature import ModelSignature

MODE = ExecutionMode(compiler="graph", executor="single_threaded", intra_op_threads=1)

#: Called with a function of batched tensors, a signature, and what to compile.
WriteArtifact = Callable[..., Path]


@pytest.fixture
def write_artifact(tmp_path: Path) -> WriteArtifact:
    def write(
        function: Callable[..., dict[str, tf.Tensor]],
        signature: ModelSignature,
        *,
        buckets: Sequence[int] = (1, 4),
        variables: Sequence[tf.Variable] = (),
        mode: Any = lambda rows: MODE,
        bitwise_groups: Sequence[Sequence[tuple[int, ...]]] = (),
        name: str = "small",
        version: int = 1,
    ) -> Path:
        artifact = tmp_path / f"{name}-{version}"
        artifact.mkdir()
        root = tf.Module()
        root.v = list(variables)
        lengths = [(size,) for size in signature.axes[0].buckets] if signature.axes else [()]
        signatures, graphs = {}, []
        for padded in lengths:
            sizes = dict(zip((axis.name for axis in signature.axes), padded, strict=True))
            for rows in buckets:
                specs = {
                    tensor.name: tf.TensorSpec([rows, *tensor.padded_shape(sizes)], tensor.dtype, name=tensor.name)
                    for tensor in signature.inputs
                }
                for axis in signature.axes:
                    if axis.length_input:
                        specs[axis.length_input] = tf.TensorSpec([rows], axis.length_dtype, name=axis.length_input)
                key = "_".join(map(str, ("predict", rows, *padded)))
                signatures[key] = tf.function(function).get_concrete_function(**specs)
                graphs.append(
                    CompiledGraph(rows=rows, lengths=padded, signature=key, mode=mode(rows), cost_s=1e-3 * rows)
                )
        tf.saved_model.save(root, str(artifact / SAVED_MODEL_DIR), signatures=signatures)
        Manifest(
            name=name,
            version=version,
            signature=signature,
            entries={"predict": tuple(graphs)},
            tensorflow_version=tf.__version__,
            built_at="2020-01-01T00:00:00+00:00",
            bitwise_groups={"predict": tuple(map(tuple, bitwise_groups))},
        ).write(artifact)
        return artifact

    return write
