"""An artifact -> a plain SavedModel, for servers that know nothing of artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from server.artifact import PREDICT, SAVED_MODEL_DIR, Manifest
from server.graph_checks.check import check_saved_model
from server.signature import ModelSignature, TensorSignature
from vectorizer import Axis, BatchedGraphs, Bucket, Output, save_batched_graphs

__all__ = ["export_artifact"]


def export_artifact(artifact: Path, directory: Path) -> None:
    """Write the graphs that an artifact serves as a SavedModel, variables once: predictions, and derivatives by name.

    The graphs are those that the builder chose: a bucket that is fastest compiled by XLA needs a TensorFlow with XLA.
    Errors: OSError; GraphRefused; ValueError if the artifact is damaged or ``directory`` holds something.
    """
    manifest = Manifest.read(artifact)
    check_saved_model(artifact / SAVED_MODEL_DIR, serves=True)
    loaded = tf.saved_model.load(str(artifact / SAVED_MODEL_DIR))
    # The first is the one whose buckets are signatures too.
    names = [PREDICT, *(name for name in manifest.entries if name != PREDICT)]
    entries = {
        "serving_default" if name == PREDICT else name: _batched_graphs(manifest, name, loaded) for name in names
    }
    save_batched_graphs(entries, directory)


def _batched_graphs(manifest: Manifest, name: str, loaded: Any) -> BatchedGraphs:
    signature = manifest.signature_of(name)
    axes = {axis.name: axis for axis in _axes(signature)}
    return BatchedGraphs(
        inputs=_inputs(signature),
        axes=tuple(axes.values()),
        outputs=tuple(
            Output(
                name=tensor.name,
                dtype=tf.as_dtype(tensor.dtype),
                dims=tuple(axes.get(dim) if isinstance(dim, str) else dim for dim in tensor.shape),
            )
            for tensor in signature.outputs
        ),
        graphs={
            Bucket(rows=graph.rows, lengths=graph.lengths): loaded.signatures[graph.signature]
            for graph in manifest.entries[name]
        },
        owners=(loaded,),
    )


def _inputs(signature: ModelSignature) -> dict[str, tf.TensorSpec]:
    inputs = {tensor.name: _spec(tensor) for tensor in signature.inputs}
    for axis in signature.axes:
        if axis.length_input is not None:
            inputs[axis.length_input] = tf.TensorSpec([], tf.as_dtype(axis.length_dtype))
    return inputs


def _spec(tensor: TensorSignature) -> tf.TensorSpec:
    return tf.TensorSpec([dim if isinstance(dim, int) else None for dim in tensor.shape], tf.as_dtype(tensor.dtype))


def _axes(signature: ModelSignature) -> list[Axis]:
    return [
        Axis(
            name=axis.name,
            max=axis.max,
            buckets=axis.buckets,
            length_input=axis.length_input,
            dims=tuple(
                (tensor.name, position)
                for tensor in signature.inputs
                for position, dim in enumerate(tensor.shape)
                if dim == axis.name
            ),
        )
        for axis in signature.axes
    ]
