"""What TensorFlow's loaders run of a meta graph, by when they run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from server.graph_checks._tensorflow import AssetFileDef
from server.graph_checks.bodies import MAIN, Scan, node_of
from server.graph_checks.errors import GraphDamaged, quoted

__all__ = ["Reached", "Roots", "Run", "asset_files", "reached_by"]

_INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_ASSETS_COLLECTION = "saved_model_assets"


class Run(StrEnum):
    """Why something is run."""

    SERVE = "a signature"
    INITIALIZE = "the initialization"
    RESTORE = "the restoring of variables"
    OBJECT = "an object of the SavedModel"
    GRADIENT = "a gradient"


@dataclass(frozen=True, slots=True)
class Roots:
    """By why they are run: tensors of the main graph, and functions."""

    tensors: Mapping[Run, tuple[str, ...]]
    functions: Mapping[Run, tuple[str, ...]]

    @classmethod
    def of(cls, meta_graph: Any) -> Roots:
        """Find them in a meta graph."""
        serve: list[str] = []
        initialize: list[str] = []
        for name, signature in meta_graph.signature_def.items():
            run = initialize if name == _INIT_SIGNATURE else serve
            for info in signature.outputs.values():
                run += _tensors_of(info)
        for key in _INIT_COLLECTIONS:
            if key in meta_graph.collection_def:
                initialize += meta_graph.collection_def[key].node_list.value
        library = meta_graph.graph_def.library
        restore = meta_graph.saver_def.restore_op_name
        return cls(
            tensors={
                Run.SERVE: tuple(serve),
                Run.INITIALIZE: tuple(initialize),
                Run.RESTORE: (restore,) if restore else (),
            },
            functions={
                Run.OBJECT: tuple(meta_graph.object_graph_def.concrete_functions),
                Run.GRADIENT: (
                    *(gradient.gradient_func for gradient in library.gradient),
                    *(gradient.gradient_func for gradient in library.registered_gradients),
                ),
            },
        )


def _tensors_of(info: Any) -> list[str]:
    match info.WhichOneof("encoding"):
        case "coo_sparse":
            sparse = info.coo_sparse
            return [sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name]
        case "composite_tensor":
            return [name for each in info.composite_tensor.components for name in _tensors_of(each)]
    return [info.name] if info.name else []


@dataclass(frozen=True, slots=True)
class Reached:
    """What one kind of run reaches: names of nodes of the main graph, and of functions, with all of their nodes."""

    nodes: frozenset[str]
    functions: frozenset[str]


def reached_by(run: Run, roots: Roots, scans: Mapping[str, Scan]) -> Reached:
    """Follow inputs and calls from the roots. Errors: GraphDamaged for a root or an input that is not there."""
    main = scans[MAIN].body.by_name
    nodes: set[str] = set()
    waiting = [node_of(tensor) for tensor in roots.tensors.get(run, ())]
    while waiting:
        name = waiting.pop()
        if name in nodes:
            continue
        if name not in main:
            raise GraphDamaged(f"{run} needs node {quoted(name)}, which the graph does not have")
        nodes.add(name)
        waiting += map(node_of, main[name].input)
    calls = [called for called, node in scans[MAIN].calls if node.name in nodes]
    functions: set[str] = set()
    calls += roots.functions.get(run, ())
    while calls:
        name = calls.pop()
        if name in functions:
            continue
        if name not in scans:
            raise GraphDamaged(f"{run} needs function {quoted(name)}, which the graph does not have")
        functions.add(name)
        calls += [called for called, _ in scans[name].calls]
    return Reached(frozenset(nodes), frozenset(functions))


def asset_files(meta_graph: Any) -> list[tuple[str, str]]:
    """Return each asset's tensor, which is fed with its path, and its file. Errors: GraphDamaged."""
    definitions = list(meta_graph.asset_file_def)
    if not definitions and _ASSETS_COLLECTION in meta_graph.collection_def:
        for packed in meta_graph.collection_def[_ASSETS_COLLECTION].any_list.value:
            definition = AssetFileDef()
            if not packed.Unpack(definition):
                raise GraphDamaged("the list of assets can't be read; save the model again with tf.saved_model.save")
            definitions.append(definition)
    return [(definition.tensor_info.name, definition.filename) for definition in definitions]
