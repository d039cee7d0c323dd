"""SavedModels for the checks: quick ones of a traced graph alone, and TensorFlow's own with something changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from server.graph_checks._tensorflow import SavedModelProto

__all__ = ["change_saved", "save_concrete", "save_graph", "traced"]

#: Changes a meta graph in place.
Change = Callable[[Any], None]

VECTOR = tf.TensorSpec([3], tf.float32, name="x")
TEXT = tf.TensorSpec([], tf.string, name="x")


def traced(function: Callable[..., Any], *specs: tf.TensorSpec) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*(specs or (VECTOR,)))


def save_graph(
    directory: Path, function: Callable[..., Any], *specs: tf.TensorSpec, change: Change | None = None
) -> Path:
    """Write ``saved_model.pb`` of a function that is traced for it."""
    return save_concrete(directory, traced(function, *specs), change=change)


def save_concrete(directory: Path, concrete: Any, *, change: Change | None = None) -> Path:
    """Write ``saved_model.pb`` of a traced function: its ops are the main graph, its outputs the signature's."""
    saved_model = SavedModelProto()
    meta_graph = saved_model.meta_graphs.add()
    meta_graph.meta_info_def.tags.append(tf.saved_model.SERVING)
    meta_graph.graph_def.CopyFrom(concrete.graph.as_graph_def())
    signature = meta_graph.signature_def["serving_default"]
    for index, output in enumerate(concrete.outputs):
        signature.outputs[f"y{index}"].name = output.name
    if change is not None:
        change(meta_graph)
    directory.mkdir(exist_ok=True)
    (directory / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    return directory


def change_saved(directory: Path, change: Change) -> Path:
    """Change the one meta graph of a SavedModel on disk."""
    path = directory / "saved_model.pb"
    saved_model = SavedModelProto.FromString(path.read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    change(meta_graph)
    path.write_bytes(saved_model.SerializeToString())
    return directory
