"""How deeply a graph's functions call each other: how many threads one call of it can occupy.

TensorFlow runs the body of an ``If`` or ``While`` as a function on its inter-op pool and lets the caller wait for it.
A pool with fewer threads than the graph has levels waits for itself and never ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

__all__ = ["inter_op_threads", "nesting_depth"]

#: A pool of more costs memory for stacks; a function library that is deeper calls itself.
_MAX_THREADS = 64


def inter_op_threads(graph_defs: Iterable[Any]) -> int:
    """Return the threads that a session needs so that none of the graphs can wait for itself."""
    return min(max(map(nesting_depth, graph_defs), default=0) + 1, _MAX_THREADS)


def nesting_depth(graph_def: Any) -> int:
    """Return the length of the longest chain of function calls; functions that call themselves count once."""
    library = {function.signature.name: function for function in graph_def.library.function}
    open_calls: set[str] = set()

    @cache
    def depth_of(name: str) -> int:
        if name in open_calls:
            return 0
        open_calls.add(name)
        deepest = max((depth_of(called) for called in _called(library[name].node_def, library)), default=0)
        open_calls.discard(name)
        return 1 + deepest

    return max((depth_of(name) for name in _called(graph_def.node, library)), default=0)


def _called(nodes: Any, library: dict[str, Any]) -> Iterator[str]:
    for node in nodes:
        for attribute in node.attr.values():
            kind = attribute.WhichOneof("value")
            functions = [attribute.func] if kind == "func" else attribute.list.func if kind == "list" else ()
            for function in functions:
                if function.name in library:
                    yield function.name
