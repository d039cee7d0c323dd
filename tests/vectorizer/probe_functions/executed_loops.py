"""The oracle: which ops of a function loop over the rows, by the loops in the graph that TensorFlow executes.

It shares nothing with the vectorizer. The graph is the one after TensorFlow's own optimizations, with all functions
inlined and every loop lowered to ``LoopCond`` and its like: what is counted has run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

__all__ = ["executed_loops", "looping_ops", "op_types"]

_SCOPE = re.compile(r"([^/]+)/pfor(?:/|$)")
_USERS = frozenset({"While", "StatelessWhile"})


def executed_loops(graph: Any, inputs: Mapping[str, np.ndarray]) -> list[str]:
    """Run a ConcreteFunction and return the names of the loops that its executed graph holds."""

    @tf.function(autograph=False)
    def fresh(*tensors: tf.Tensor) -> Any:
        return graph(**dict(zip(inputs, tensors, strict=True)))

    arguments = [tf.constant(value) for value in inputs.values()]
    runtime = context.context()
    runtime.enable_graph_collection()
    try:
        fresh(*arguments)
        metadata = runtime.export_run_metadata()
    finally:
        runtime.disable_graph_collection()
    return [node.name for part in metadata.partition_graphs for node in part.node if node.op == "LoopCond"]


def op_types(graph_def: Any) -> dict[str, set[str]]:
    """Return the op types that a name has in a graph or any of its functions."""
    types: dict[str, set[str]] = {}
    for nodes in (graph_def.node, *(function.node_def for function in graph_def.library.function)):
        for node in nodes:
            types.setdefault(node.name.rsplit("/", 1)[-1], set()).add(node.op)
    return types


def looping_ops(batched: list[str], unbatched: list[str], types: Mapping[str, set[str]]) -> Counter[str]:
    """Return the op types whose conversion left loops beyond those of one example, with their number.

    A loop is named after the op that it was made for, which is the innermost one if several are around it.
    """
    extra: Counter[str] = Counter()
    for name in batched:
        scopes = _SCOPE.findall(name)
        made_for = types.get(scopes[-1], set()) if scopes else set()
        if made_for and not made_for & _USERS:
            extra.update(made_for)
    if len(batched) - sum(extra.values()) > len(unbatched):
        extra["unknown"] += len(batched) - sum(extra.values()) - len(unbatched)
    return extra
