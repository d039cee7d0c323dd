"""Copying a traced graph into the one that is being built, the functions that it calls included.

A gradient through a call has to pass everything that the backward pass needs out of the function, constants too,
and gets a gradient of zeros back for each: in a graph without calls there are neither. Loops and branches stay what
they are; TensorFlow differentiates them as ops.

A custom gradient is a Python function that reads tensors of the graph in which it was made. The copy of its op gets
a gradient that runs that function beside the original, and copies what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from vectorizer._pfor import called_graph, copy_handle_data
from vectorizer.derivatives.copies import (
    custom_gradient,
    own_graphs,
    replace_gradient,
    share_functions,
    traced_beside,
)

__all__ = ["Inlined", "inline"]

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
#: Say where an op ran in its old graph.
_DROPPED_ATTRIBUTES = frozenset({"_class", "_output_shapes", "_gradient_op_type"})


class Inlined:
    """A copy under way: ``copies`` maps the tensors of all inlined graphs to those of the graph being built.

    ``originals`` maps the copied ops' names to the ops that they are copies of.
    """

    def __init__(self) -> None:
        #: Values are kept with their originals, so that no id is given out twice.
        self._copies: dict[int, tuple[tf.Tensor, tf.Tensor]] = {}
        self.originals: dict[str, Any] = {}

    def put(self, original: tf.Tensor, copy: tf.Tensor) -> None:
        """Say what stands for a tensor."""
        self._copies[id(original)] = (original, copy)

    def of(self, original: tf.Tensor) -> tf.Tensor:
        """Return what stands for a tensor. Errors: KeyError for one of a graph that was not inlined."""
        return self._copies[id(original)][1]

    def knows(self, original: tf.Tensor) -> bool:
        """Return True if something stands for the tensor."""
        return id(original) in self._copies


def inline(graph: Any, inputs: Sequence[tf.Tensor], copied: Inlined) -> list[tf.Tensor]:
    """Copy a ``FuncGraph`` with ``inputs`` in place of its own, captured ones included; return its outputs."""
    for inner, outer in zip(graph.inputs, inputs, strict=True):
        copied.put(inner, outer)
    placeholders = {inner.op.name for inner in graph.inputs}
    for op in _in_order(graph):
        if op.name in placeholders or op.type == "NoOp":
            continue
        given = [copied.of(tensor) for tensor in op.inputs]
        made = inline(called_graph(op, "f"), given, copied) if op.type in _CALLS else _copy(op, given, copied)
        for original, copy in zip(op.outputs, made, strict=False):
            copied.put(original, copy)
    return [copied.of(output) for output in graph.outputs]


def _in_order(graph: Any) -> list[Any]:
    """Return the ops, each after those that it reads from.

    They were made in that order, unless somebody has differentiated the graph: a loop in it then reads lists that were
    made after it.
    """
    ops = graph.get_operations()
    order: dict[str, Any] = {}
    for root in ops:
        waiting = [root]
        while waiting:
            op = waiting[-1]
            missing = [given.op for given in op.inputs if given.op.name not in order]
            if op.name in order or not missing:
                order[op.name] = waiting.pop()
            else:
                waiting.extend(missing)
    return list(order.values())


def _copy(op: Any, inputs: Sequence[tf.Tensor], copied: Inlined) -> list[tf.Tensor]:
    graph = tf.compat.v1.get_default_graph()
    share_functions(op, graph)
    attributes = {name: value for name, value in op.node_def.attr.items() if name not in _DROPPED_ATTRIBUTES}
    made = graph.create_op(
        op.type, list(inputs), [output.dtype for output in op.outputs], name=op.name, attrs=attributes
    )
    copied.originals[made.name] = op
    for original, copy in zip(op.outputs, made.outputs, strict=True):
        copy.set_shape(original.shape)
        # Else the gradient of a loop that carries a variable makes zeros of unknown shape.
        copy_handle_data(original, copy)
    own_graphs(made, op)
    own_gradient = custom_gradient(op)
    if own_gradient is not None:
        replace_gradient(made, _gradient_beside(op, own_gradient, copied))
    return list(made.outputs)


def _gradient_beside(op: Any, gradient: Callable[..., Any], copied: Inlined) -> Callable[..., Any]:
    """Return the gradient of the copy of ``op``, which was made in a graph that the copy is not in."""

    def of_copy(_made: Any, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        graph, present = traced_beside(op, gradient, cotangents)
        outside: Mapping[int, tf.Tensor] = {id(inner): outer for outer, inner in graph.captures}
        if not all(map(copied.knows, outside.values())):
            raise LookupError(f"the custom gradient of op {op.name} reads a graph that is gone: CustomGradient")
        inputs = [
            copied.of(outside[id(inner)]) if id(inner) in outside else cotangents[index]
            for index, inner in enumerate(graph.inputs)
        ]
        made = iter(inline(graph, inputs, copied))
        return [next(made) if is_present else None for is_present in present]

    return of_copy
