"""Graphs of functions, and ops in them: what TensorFlow knows of a traced function and does not tell in public."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.graph_debug_info_pb2 import GraphDebugInfo as DebugInfoProto
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as SavedModelProto
from tensorflow.python.eager import cancellation as _cancellation
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import function_def_to_graph as _function_def_to_graph
from tensorflow.python.framework import ops as _ops
from tensorflow.python.framework import tensor_util as _tensor_util
from tensorflow.python.ops import control_flow_util_v2 as _control_flow
from tensorflow.python.ops import handle_data_util as _handle_data
from tensorflow.python.ops.parallel_for import pfor as _stock

from vectorizer.conversions import CALLED_BY

__all__ = [
    "DebugInfoProto",
    "FuncGraph",
    "SavedModelProto",
    "called_graph",
    "called_graphs",
    "cancellable",
    "captured",
    "constant_of",
    "copied_op",
    "copy_handle_data",
    "copy_op",
    "function_graph",
    "gradient_function",
    "graph_by_name",
    "graph_for_branch",
    "is_stateful",
    "known_called_graphs",
    "known_function",
]

FuncGraph = _func_graph.FuncGraph

#: Elements. Larger constants stay where they are: a filter is no size.
_MOST_CONSTANT = 64


#: ``(op)`` -> the function that computes an op's gradient. Errors: LookupError.
gradient_function = _ops.get_gradient_function


#: ``(before, after)``: what is known of the variable or list behind a handle is known of another.
copy_handle_data = _handle_data.copy_handle_data


#: ``(op, input_shapes, name)`` -> a new graph of a function that a loop or branch names.
graph_for_branch = _control_flow.get_func_graph


def cancellable(concrete: Any) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Return a ConcreteFunction as a call, and what cancels it from another thread."""
    manager = _cancellation.CancellationManager()

    def cancel() -> None:
        manager.start_cancel()
        # An op that works on regardless never leaves its context, and later calls would be cancelled with it.
        _cancellation._active_context = None

    return manager.get_cancelable_function(concrete), cancel


def called_graph(op: Any, attribute: str) -> Any:
    """Return the graph of the function that ``op`` names in ``attribute``."""
    return graph_by_name(op, op.get_attr(attribute).name)


def known_function(graph: Any, name: str) -> Any:
    """Return the function that a graph or one around it knows by ``name``; None if none does."""
    while graph is not None:
        found = graph._get_function(name)
        if found is not None:
            return found
        graph = getattr(graph, "outer_graph", None)
    return None


def called_graphs(op: Any) -> list[Any]:
    """Return the graphs of the functions that ``op`` runs; none for an op that calls nothing."""
    return [graph_by_name(op, name) for name in _called_names(op)]


def known_called_graphs(op: Any) -> list[Any]:
    """Return them for an op that was made here: one that pfor copied, as all rows share it, left its functions behind.

    It has no effects, else it would have been converted.
    """
    return [graph_by_name(op, name) for name in _called_names(op) if known_function(op.graph, name) is not None]


def _called_names(op: Any) -> list[str]:
    names = [op.get_attr(attribute).name for attribute in CALLED_BY.get(op.type, ())]
    return [*names, *(branch.name for branch in op.get_attr("branches"))] if op.type in _CASES else names


_CASES = ("Case", "StatelessCase")


def graph_by_name(op: Any, name: str) -> Any:
    """Return the graph of a function that the graph of ``op`` knows by name."""
    known = known_function(op.graph, name)
    with op.graph.as_default():  # where functions that it calls in turn are known
        if known is None:  # pfor copied the op, but not what it calls
            return _function_def_to_graph.function_def_to_graph(_context.context().get_function_def(name))
        return function_graph(known)


def function_graph(func: Any) -> Any:
    """Return the ``FuncGraph`` of anything that TensorFlow calls a function, built from its definition if need be."""
    if isinstance(func, _func_graph.FuncGraph):
        return func
    graph = getattr(func, "graph", None)
    if isinstance(graph, _func_graph.FuncGraph):
        return graph
    return _function_def_to_graph.function_def_to_graph(func.definition)


def captured(inner: Any, outer: Any) -> tf.Tensor:
    """Bring what a traced function captured as ``inner``, a variable say, into the current graph.

    A small constant is made again: captured, as by the body of a loop, it is a tensor of which nothing is known, and an
    axis or a shape has to be known.
    """
    graph = _ops.get_default_graph()
    if not isinstance(outer, _ops.EagerTensor) and outer.graph is not graph:
        value = constant_of(outer)
        if value is not None and value.size <= _MOST_CONSTANT:
            return tf.constant(value, outer.dtype)
    tensor = graph.capture(outer)
    _handle_data.copy_handle_data(inner, tensor)
    return tensor


def constant_of(tensor: Any) -> Any:
    """Return a tensor's value as an array where it is known before the graph runs, else None."""
    return _tensor_util.constant_value(tensor)


def copy_op(op: Any, inputs: Sequence[tf.Tensor]) -> Any:
    """Make an op again in the current graph, with its own attributes, on other inputs."""
    made = _stock._create_op(op.type, list(inputs), [output.dtype for output in op.outputs], attrs=op.node_def.attr)
    for before, after in zip(op.outputs, made.outputs, strict=True):
        _handle_data.copy_handle_data(before, after)
    return made


def copied_op(op: Any, inputs: Sequence[tf.Tensor]) -> Any:
    """Return an op of the current graph that does on ``inputs`` what ``op`` does, with shapes inferred anew."""
    # Attributes with an underscore place the op or repeat what is inferred, but for the name of a custom gradient.
    attributes = {
        name: value
        for name, value in op.node_def.attr.items()
        if not name.startswith("_") or name == "_gradient_op_type"
    }
    return _ops.get_default_graph().create_op(
        op.type, list(inputs), [output.dtype for output in op.outputs], attrs=attributes, name=op.name
    )


def is_stateful(op: Any) -> bool:
    """Return True if the op has effects or state beyond reading a variable."""
    return bool(_stock._is_stateful_pfor_op(op))
