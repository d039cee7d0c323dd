"""What a copied op takes along besides its attributes: the functions that it names, and a gradient of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import (
    FuncGraph,
    copy_handle_data,
    gradient_function,
    graph_by_name,
    graph_for_branch,
    known_function,
)

__all__ = ["custom_gradient", "own_graphs", "replace_gradient", "share_functions", "traced_beside"]

#: Where TensorFlow's gradients of control flow look for the graphs of an op's functions.
_KEPT_GRAPHS = {
    "then_branch": "_true_graph",
    "else_branch": "_false_graph",
    "cond": "_cond_graph",
    "body": "_body_graph",
}
_copy_numbers = itertools.count(1)


def share_functions(op: Any, graph: Any) -> None:
    """Let ``graph`` know the functions that ``op``, an op of another graph, names in its attributes."""
    for name, value in op.node_def.attr.items():
        functions = [value.func] if value.HasField("func") else list(value.list.func)
        for function in functions if not name.startswith("_") else ():
            known = known_function(op.graph, function.name)
            if known is not None:
                graph._add_function_recursive(known)


def own_graphs(op: Any, original: Any) -> None:
    """Give a copied loop or branch graphs of its own, under new names.

    Its gradient adds outputs to them and registers the result under a name made of theirs; the original's gradient
    would register other functions under the same names.
    """
    functions = {kept: op.get_attr(name) for name, kept in _KEPT_GRAPHS.items() if name in op.node_def.attr}
    if "branches" in op.node_def.attr:
        functions |= {f"_branch_graph_{index}": branch for index, branch in enumerate(op.get_attr("branches"))}
    for kept, function in functions.items():
        inputs = op.inputs if kept in ("_cond_graph", "_body_graph") else op.inputs[1:]
        graph = graph_for_branch(op, [tensor.shape for tensor in inputs], function.name)
        _tell_shapes(graph_by_name(original, function.name), graph)
        graph.name = f"{graph.name}_copy_{next(_copy_numbers)}"
        setattr(op, kept, graph)


def _tell_shapes(graph: Any, copy: Any) -> None:
    """Let a graph that was built of another's definition know the shapes that the other knows.

    What is behind a handle is in no definition, and the shape of all that is computed from a variable with it.
    """
    copies = {op.name: op for op in copy.get_operations()}
    for op in graph.get_operations():
        for before, after in zip(op.outputs, copies[op.name].outputs if op.name in copies else (), strict=False):
            after.set_shape(before.shape)
            copy_handle_data(before, after)
    for before, after in zip(graph.inputs, copy.inputs, strict=True):
        copy_handle_data(before, after)


def custom_gradient(op: Any) -> Callable[..., Any] | None:
    """Return the gradient that was given to this one op; None if it has that of its type.

    Errors: LookupError if it had one that was not saved with it.
    """
    own: Callable[..., Any] | None = op._gradient_function
    if own is None and "_gradient_op_type" in op.node_def.attr:
        own = gradient_function(op)
    return own


def replace_gradient(op: Any, gradient: Callable[..., Any]) -> None:
    """Give one op a gradient of its own."""
    op._gradient_function = gradient


def traced_beside(op: Any, gradient: Callable[..., Any], cotangents: Sequence[tf.Tensor]) -> tuple[Any, list[bool]]:
    """Trace ``gradient(op, *cotangents)`` where it can read the graph of ``op``.

    Return a graph that takes the cotangents and then what it captured, and which of the results there are.
    """
    with op.graph.as_default():
        graph = FuncGraph("gradient")
        with graph.as_default():
            placeholders = [tf.compat.v1.placeholder(each.dtype, each.shape) for each in cotangents]
            graph.inputs = list(placeholders)
            results = gradient(op, *placeholders)
            results = list(results) if isinstance(results, (list, tuple)) else [results]
            graph.outputs = [graph.capture(tf.convert_to_tensor(result)) for result in results if result is not None]
    return graph, [result is not None for result in results]
