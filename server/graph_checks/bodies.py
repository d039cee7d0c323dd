"""The main graph and the functions of a meta graph, and what a walk over one of them found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from server.graph_checks.errors import GraphDamaged, quoted

__all__ = ["MAIN", "Body", "Scan", "bodies_of", "node_of"]

#: The main graph's name among the bodies: no function has an empty one.
MAIN = ""


@dataclass(frozen=True)
class Body:
    """The main graph (``name`` is MAIN) or a function: its nodes, and the names of a function's arguments."""

    name: str
    nodes: Any
    arguments: tuple[str, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Any]:
        """Its nodes by their names. Errors: GraphDamaged if two have the same."""
        nodes = {node.name: node for node in self.nodes}
        if len(nodes) != len(self.nodes):
            raise GraphDamaged("two nodes of a graph have the same name; save the model again with tf.saved_model.save")
        return nodes


@dataclass(slots=True)
class Scan:
    """What the walk over one body found.

    ``calls`` are the nodes that call functions, with each function's name; ``placed`` those that read or write files;
    ``writes`` those that change a variable or a table.
    """

    body: Body
    calls: list[tuple[str, Any]] = field(default_factory=list)
    placed: list[Any] = field(default_factory=list)
    writes: list[Any] = field(default_factory=list)


def bodies_of(graph_def: Any) -> dict[str, Body]:
    """Return the main graph and all functions by name. Errors: GraphDamaged."""
    bodies = {MAIN: Body(MAIN, graph_def.node)}
    for function in graph_def.library.function:
        name = function.signature.name
        if name in bodies:
            raise GraphDamaged(f"the graph has two functions {quoted(name)}, or one without a name")
        bodies[name] = Body(name, function.node_def, tuple(each.name for each in function.signature.input_arg))
    return bodies


def node_of(tensor: str) -> str:
    """Return the name of the node whose output a tensor's name means: ``^a``, ``a``, ``a:0`` and ``a:y:0`` are a's."""
    return tensor.removeprefix("^").partition(":")[0]
