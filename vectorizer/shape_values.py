"""Arithmetic on shapes, done while a graph is traced again.

A graph that was traced for a batch of any size computes with that size: how many elements a list has, how often a loop
runs, whether an assertion about shapes holds. Once shapes are known all of these are constants, which Python would have
seen as numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

__all__ = ["known_value"]

_FROM_SHAPE = frozenset({"Rank", "Shape", "Size"})
_ARITHMETIC = frozenset(
    {
        "AddV2",
        "All",
        "Cast",
        "ConcatV2",
        "Equal",
        "ExpandDims",
        "FloorDiv",
        "FloorMod",
        "GatherV2",
        "Greater",
        "GreaterEqual",
        "Less",
        "LessEqual",
        "LogicalAnd",
        "LogicalNot",
        "LogicalOr",
        "Maximum",
        "Minimum",
        "Mul",
        "NotEqual",
        "Pack",
        "Prod",
        "Reshape",
        "Squeeze",
        "StridedSlice",
        "Sub",
        "Sum",
    }
)
#: What ``tf.raw_ops`` calls otherwise than the op itself.
_PYTHON_NAMES = {"dim": "axis", "reduction_indices": "axis", "squeeze_dims": "axis"}
#: Shapes are small; anything larger is data.
_MAX_ELEMENTS = 64


def known_value(op: Any, inputs: Sequence[tf.Tensor]) -> tf.Tensor | None:
    """Return what ``op`` makes of ``inputs`` as a constant of the current graph, if it is a number that shapes decide.

    None if it is not. Errors: none; an op that fails on its values is left to fail when it runs.
    """
    if op.type in _FROM_SHAPE:
        shape = inputs[0].shape
        if not shape.is_fully_defined():
            return None
        value = {"Rank": shape.rank, "Shape": shape.as_list(), "Size": shape.num_elements()}[op.type]
        return tf.constant(value, op.outputs[0].dtype)
    if op.type not in _ARITHMETIC or not all(map(_is_number, (*inputs, *op.outputs))):
        return None
    values = [tf.get_static_value(each) for each in inputs]
    if any(value is None for value in values):
        return None
    try:
        with tf.init_scope():
            value = _run(op, values).numpy()
    except (tf.errors.OpError, ValueError):
        return None
    return tf.constant(value, op.outputs[0].dtype)


def _is_number(tensor: Any) -> bool:
    n_elements = tensor.shape.num_elements()
    return (tensor.dtype.is_integer or tensor.dtype == tf.bool) and (n_elements is None or n_elements <= _MAX_ELEMENTS)


def _run(op: Any, values: Sequence[Any]) -> tf.Tensor:
    function = getattr(tf.raw_ops, op.type)
    parameters = inspect.signature(function).parameters
    arguments: dict[str, Any] = {}
    rest = list(values)
    for argument in op.op_def.input_arg:
        count = op.get_attr(argument.number_attr) if argument.number_attr else 1
        given, rest = rest[:count], rest[count:]
        arguments[_PYTHON_NAMES.get(argument.name, argument.name)] = given if argument.number_attr else given[0]
    for attribute in op.op_def.attr:
        name = _PYTHON_NAMES.get(attribute.name, attribute.name)
        if name in parameters:  # others follow from the values
            arguments[name] = op.get_attr(attribute.name)
    result: tf.Tensor = function(**arguments)
    return result
