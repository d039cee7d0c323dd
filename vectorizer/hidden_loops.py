"""Loops over the rows, found in the finished graph.

Theory of operation. What a conversion says of itself is not believed. Every loop that the batched graph can reach is
traced to the op that it was made for: pfor makes all nodes of a conversion in a name scope ``<op>/pfor``, and a
function's nodes belong to what the node that calls it belongs to. Then

1. a loop made for a loop of the user's is that loop (a partitioned one is made several times, one after the other);
2. a loop inside of it that was made for the same op is none of the user's: it runs over the rows;
3. a function of the per-example graph that was copied as it is may loop as it likes: it does so once for all rows;
4. any other loop runs once for each row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from vectorizer.conversions import ConversionLog, OpKey, op_key
from vectorizer.loops import LOOP_OPS, called_functions

__all__ = ["hidden_loops"]

_SCOPE = "/pfor/"
_USERS_LOOPS = frozenset({"While", "StatelessWhile"})
_REASON = "its converter is a loop over the rows"


def hidden_loops(batched: Any, example: Any, log: ConversionLog) -> dict[OpKey, tuple[Any, str]]:
    """Return the ops whose conversion left a loop over the rows in the GraphDef ``batched``, with the reason.

    ``example`` is the GraphDef of one example.
    """
    own = {function.signature.name for function in example.library.function}
    made_for: dict[str, list[Any]] = {}
    for entry in log.conversions:
        made_for.setdefault(entry.op.name, []).append(entry.op)
    found = {}
    for maker, is_nested in _loops(batched, own, made_for):
        ops = made_for.get(maker, [])
        if not is_nested and any(op.type in _USERS_LOOPS for op in ops):
            continue
        for op in ops:
            found[op_key(op)] = (op, _REASON)
    return found


def _loops(graph_def: Any, own: Collection[str], known: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Yield for each loop the name of the op that it was made for, and whether one of the same op is around it."""
    library = {function.signature.name: function for function in graph_def.library.function}

    def visit(nodes: Any, maker: str, around: tuple[str, ...], path: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
        for node in nodes:
            made_for = _scope(node.name, known) or maker
            is_loop = node.op in LOOP_OPS
            if is_loop and made_for:
                yield made_for, made_for in around
            for name in called_functions(node):
                if name in library and name not in path and name not in own:
                    within = (*around, made_for) if is_loop else around
                    yield from visit(library[name].node_def, made_for, within, (*path, name))

    yield from visit(graph_def.node, "", (), ())


def _scope(name: str, known: Collection[str]) -> str:
    """Return the op that a node was made for, by its name; an op of a graph that pfor made has a scope in its own."""
    end = len(name)
    while (end := name.rfind(_SCOPE, 0, end)) >= 0:
        if name[:end] in known:
            return name[:end]
    return name.partition(_SCOPE)[0] if _SCOPE in name else ""
