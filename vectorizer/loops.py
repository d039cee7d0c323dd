"""Counting loops in a graph and in every function that it can reach.

Whether an op was vectorized is not what the conversion says of itself but what stands in the finished graph:
some of pfor's own converters hide a while loop. A batched graph that has more loops than the graph of one
example runs something once for each row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

__all__ = ["LOOP_OPS", "called_functions", "count_loops", "count_ops", "walk_nodes"]

LOOP_OPS = frozenset({"While", "StatelessWhile", "_While", "For", "StatelessFor", "LoopCond", "MapDefun"})


def walk_nodes(graph_def: Any) -> Iterator[Any]:
    """Yield every node of a GraphDef, then of each library function once for every call site that reaches it.

    A function that is called twice counts twice, as it runs twice. Errors: none; an unknown name is no function.
    """
    library = {function.signature.name: function for function in graph_def.library.function}

    def visit(nodes: Any, path: tuple[str, ...]) -> Iterator[Any]:
        for node in nodes:
            yield node
            for name in called_functions(node):
                if name in library and name not in path:
                    yield from visit(library[name].node_def, (*path, name))

    yield from visit(graph_def.node, ())


def count_ops(graph_def: Any) -> Counter[str]:
    """Return how many nodes of each op type the graph holds, functions included."""
    return Counter(node.op for node in walk_nodes(graph_def))


def count_loops(graph_def: Any) -> int:
    """Return how many loops the graph holds, functions included."""
    return sum(count for op, count in count_ops(graph_def).items() if op in LOOP_OPS)


def called_functions(node: Any) -> Iterator[str]:
    """Yield the names of the functions that a node calls."""
    for name, attr in node.attr.items():
        # Gradient and registration attributes name functions that the node does not call.
        if name.startswith("_"):
            continue
        kind = attr.WhichOneof("value")
        if kind == "func":
            yield attr.func.name
        elif kind == "list":
            for func in attr.list.func:
                yield func.name
