"""What the checks need of TensorFlow's private modules: its messages, and what it says of each op."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2, tensor_bundle_pb2
from tensorflow.python.framework import op_def_registry

__all__ = [
    "GRAPH_VERSION",
    "AssetFileDef",
    "BundleEntryProto",
    "BundleHeaderProto",
    "OpShape",
    "SavedModelProto",
    "op_shape",
]

AssetFileDef = meta_graph_pb2.AssetFileDef
BundleEntryProto = tensor_bundle_pb2.BundleEntryProto
BundleHeaderProto = tensor_bundle_pb2.BundleHeaderProto
SavedModelProto = saved_model_pb2.SavedModel

#: The version of graphs that this TensorFlow writes.
GRAPH_VERSION: int = tf.version.GRAPH_DEF_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class OpShape:
    """An op as it is registered: its attributes, those that hold functions or text, and since when it is deprecated.

    ``deprecated_at`` is the graph version from which on it is refused; 0 if it never is.
    """

    attributes: frozenset[str]
    functions: tuple[str, ...]
    texts: tuple[str, ...]
    deprecated_at: int


@cache
def op_shape(op_type: str) -> OpShape | None:
    """Return what TensorFlow says of an op; None if it has none of that name."""
    definition: Any = op_def_registry.get(op_type)
    if definition is None:
        return None
    types = {attribute.name: attribute.type for attribute in definition.attr}
    return OpShape(
        attributes=frozenset(types),
        functions=tuple(name for name, kind in types.items() if kind in ("func", "list(func)")),
        texts=tuple(name for name, kind in types.items() if kind in ("string", "list(string)")),
        deprecated_at=definition.deprecation.version,
    )
