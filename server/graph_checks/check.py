"""All checks of one SavedModel, in their order: files, graph, every node, calls, files that ops use, variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.graph_checks._tensorflow import GRAPH_VERSION
from server.graph_checks.bodies import MAIN, Scan, bodies_of
from server.graph_checks.calls import check_calls
from server.graph_checks.checkpoint import check_variables
from server.graph_checks.constants import ConstantSizes
from server.graph_checks.devices import check_device
from server.graph_checks.errors import GraphTooLarge, OpRefused, UnknownOp, place
from server.graph_checks.files import check_asset, check_files, read_graphs
from server.graph_checks.limits import GraphLimits
from server.graph_checks.nodes import Nodes
from server.graph_checks.placed import FileNames, check_reach
from server.graph_checks.roots import Reached, Roots, Run, asset_files, reached_by

__all__ = ["GraphSize", "check_saved_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSize:
    """How large a SavedModel is that passed: over all meta graphs, bytes as they take memory."""

    n_nodes: int
    n_functions: int
    constant_bytes: int
    variable_bytes: int


def check_saved_model(directory: Path, *, limits: GraphLimits | None = None, serves: bool = False) -> GraphSize:
    """Check the SavedModel in ``directory`` without loading it, and return its size.

    ``serves``: its signatures answer requests as they are, so that none may change a variable or a table, which would
    carry what one caller sends to the next.
    Errors: GraphRefused in all its kinds; OSError.
    """
    limits = limits or GraphLimits()
    check_files(directory, limits)
    saved_model = read_graphs(directory, limits)
    constants = ConstantSizes(limits)
    n_nodes = n_functions = 0
    for meta_graph in saved_model.meta_graphs:
        scans = _scans(meta_graph, limits, constants)
        n_nodes += sum(len(scan.body.nodes) for scan in scans.values())
        n_functions += len(scans) - 1
        if n_nodes > limits.max_nodes or n_functions > limits.max_functions:
            raise GraphTooLarge(
                f"the graph has {n_nodes} nodes and {n_functions} functions, over max_nodes = {limits.max_nodes} or "
                f"max_functions = {limits.max_functions}: register fewer buckets, or a smaller model"
            )
        check_calls(scans, limits)
        _check_runs(meta_graph, scans, directory, serves=serves)
    return GraphSize(
        n_nodes=n_nodes,
        n_functions=n_functions,
        constant_bytes=constants.total_bytes,
        variable_bytes=check_variables(directory, limits),
    )


def _scans(meta_graph: Any, limits: GraphLimits, constants: ConstantSizes) -> dict[str, Scan]:
    versions = meta_graph.graph_def.versions
    if versions.min_consumer > GRAPH_VERSION:
        raise UnknownOp(
            f"the graph is for TensorFlow's graphs of version {versions.min_consumer} and later, and this one reads "
            f"{GRAPH_VERSION}: save the model with the TensorFlow that this server has"
        )
    bodies = bodies_of(meta_graph.graph_def)
    nodes = Nodes(limits, constants, producer=versions.producer, functions=bodies.keys() - {MAIN})
    for node in meta_graph.object_graph_def.nodes:
        for device in _devices_of(node):
            check_device(device, "(an object)", MAIN)
    return {name: nodes.scan(body) for name, body in bodies.items()}


def _devices_of(node: Any) -> Iterator[str]:
    kind = node.WhichOneof("kind")
    if kind in ("variable", "resource"):
        yield getattr(node, kind).device


def _check_runs(meta_graph: Any, scans: dict[str, Scan], directory: Path, *, serves: bool) -> None:
    assets = asset_files(meta_graph)
    for _, name in assets:
        check_asset(directory, name)
    roots = Roots.of(meta_graph)
    reached = {run: reached_by(run, roots, scans) for run in Run}
    check_reach(scans, reached)
    FileNames(meta_graph, scans, [tensor for tensor, _ in assets]).check()
    if serves:
        _check_state(scans, reached[Run.SERVE])


def _check_state(scans: dict[str, Scan], served: Reached) -> None:
    for scan in scans.values():
        name = scan.body.name
        for node in scan.writes:
            if node.name in served.nodes if name == MAIN else name in served.functions:
                raise OpRefused(
                    f"op {node.op} ({place(node.name, name)}) changes what the next request would see, and a "
                    "signature runs it: register the model again"
                )
