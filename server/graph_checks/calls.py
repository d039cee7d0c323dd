"""Who calls whom: no function itself, not too deeply, and not so often that writing it all out fills the memory.

TensorFlow's inliner puts a function's nodes in the place of each call. Twenty functions that each call the next one
twice are a million copies of the last: the file is small, the graph is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from server.graph_checks.bodies import MAIN, Scan
from server.graph_checks.errors import GraphDamaged, GraphTooLarge, quoted
from server.graph_checks.limits import GraphLimits

__all__ = ["check_calls"]


def check_calls(scans: Mapping[str, Scan], limits: GraphLimits) -> None:
    """Errors: GraphDamaged for a function that calls itself; GraphTooLarge."""
    inlined: dict[str, tuple[int, int]] = {}
    chain: list[str] = []

    def size(name: str) -> tuple[int, int]:
        """Return how many nodes a body has with all its calls written out, and how many levels of functions."""
        if name in inlined:
            return inlined[name]
        if name in chain:
            path = " -> ".join(quoted(each) for each in [*chain[chain.index(name) :], name])
            raise GraphDamaged(f"a function calls itself: {path[:500]}; write it as a loop")
        if len(chain) > limits.max_call_depth:
            raise GraphTooLarge(
                f"functions call one another over max_call_depth = {limits.max_call_depth} levels deep, down to "
                f"{quoted(name)}: call them one after the other"
            )
        chain.append(name)
        scan = scans[name]
        nodes, depth = len(scan.body.nodes), 0
        for called, _ in scan.calls:
            called_nodes, called_depth = size(called)
            nodes += called_nodes
            depth = max(depth, called_depth + 1)
        chain.pop()
        if depth > limits.max_call_depth:
            raise GraphTooLarge(
                f"functions call one another over max_call_depth = {limits.max_call_depth} levels deep below "
                f"{'the main graph' if name == MAIN else quoted(name)}: call them one after the other"
            )
        if nodes > limits.max_inlined_nodes:
            raise GraphTooLarge(
                f"{'the main graph' if name == MAIN else f'function {quoted(name)}'} has over max_inlined_nodes = "
                f"{limits.max_inlined_nodes} nodes once its calls are written out: call functions in a loop"
            )
        inlined[name] = nodes, depth
        return inlined[name]

    for name in scans:
        size(name)
