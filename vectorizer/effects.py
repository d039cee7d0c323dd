"""Ops that do something besides computing their outputs.

pfor drops what is not on the path to an output and runs some effects once for the whole batch, for row 0 only. A
function with an effect is refused by name, instead of being served with the effect lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from vectorizer._pfor import called_graph, graph_by_name, is_stateful
from vectorizer.errors import SideEffectError
from vectorizer.source import source_line

__all__ = ["refuse_effects"]

#: Stateful by TensorFlow's registration, but their only effect is to be in the graph or to call what is judged itself.
_HARMLESS = frozenset(
    {
        "Case",
        "If",
        "LookupTableFindV2",
        "LookupTableSizeV2",
        "NoOp",
        "PartitionedCall",
        "Placeholder",
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "StatefulPartitionedCall",
        "TensorListReserve",
        "VarHandleOp",
        "VariableShape",
        "While",
    }
)
_CALLED_BY = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
}
_HINTS = {
    "Assert": "return a flag as an output instead, and let the caller judge it",
    "PrintV2": "remove the print",
    "EagerPyFunc": "Python can't run inside a served graph; write it with TensorFlow ops",
    "PyFunc": "Python can't run inside a served graph; write it with TensorFlow ops",
}


def refuse_effects(graph: Any, function_name: str, *, where: Callable[[Any], str] = source_line) -> None:
    """Errors: SideEffectError naming each op with an effect, its place and what to do."""
    found: dict[tuple[str, str], None] = {}
    for op in walk_ops(graph):
        if op.type not in _HARMLESS and is_stateful(op):
            found[op.type, where(op)] = None
    if found:
        places = "; ".join(
            f"{op} ({place}): {_HINTS.get(op, 'a batch would run it once, not once for each row')}"
            for op, place in found
        )
        raise SideEffectError(f"{function_name} has effects that can't be served by the batch: {places}")


def walk_ops(graph: Any) -> Iterator[Any]:
    """Yield the ops of a traced graph and of every function that they call."""
    seen: set[int] = set()

    def visit(current: Any) -> Iterator[Any]:
        if id(current) in seen:
            return
        seen.add(id(current))
        for op in current.get_operations():
            yield op
            for attribute in _CALLED_BY.get(op.type, ()):
                yield from visit(called_graph(op, attribute))
            if op.type in ("Case", "StatelessCase"):
                for branch in op.get_attr("branches"):
                    yield from visit(graph_by_name(op, branch.name))

    yield from visit(graph)
