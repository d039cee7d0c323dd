"""What two integers of the traced function differ by, read off how they are computed.

``i`` and ``i + 3`` are unknown when a graph is built, but three apart for every example.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import is_stateful

__all__ = ["constant_difference", "constant_entry"]

_SAME_VALUE = frozenset({"Identity", "StopGradient"})
#: How deep two expressions are compared.
_DEPTH = 8


def constant_entry(tensor: tf.Tensor, entry: int | None) -> int | None:
    """Return ``tensor[entry]`` of the function, or ``tensor`` if it is a scalar, where it is a constant."""
    known = tf.get_static_value(tensor, partial=True)
    if known is not None:
        values = np.asarray(known, object).reshape([-1])
        value = values[0 if values.size == 1 or entry is None else entry]
        return None if value is None else int(value)
    op = tensor.op
    if op.type not in ("Add", "AddV2", "Sub"):
        return None
    a, b = (constant_entry(term, entry) for term in op.inputs)
    if a is None or b is None:
        return None
    return a - b if op.type == "Sub" else a + b


def constant_difference(minuend: tf.Tensor, subtrahend: tf.Tensor, entry: int | None) -> int | None:
    """Return ``minuend[entry] - subtrahend[entry]`` of the function if it is the same for every example.

    ``entry`` is None for scalars. Errors: none; None is returned for what can't be seen to be constant.
    """
    (a, a_entry), a_offset = _linear(minuend, entry)
    (b, b_entry), b_offset = _linear(subtrahend, entry)
    if a_entry == b_entry and _is_same(a, b, _DEPTH):
        return a_offset - b_offset
    return None


def _linear(tensor: tf.Tensor, entry: int | None) -> tuple[tuple[tf.Tensor, int | None], int]:
    """Take the constants off a sum: what remains (and which entry of it, if it is a vector), and their total."""
    offset = 0
    while True:
        op = tensor.op
        if op.type == "Pack" and entry is not None and op.inputs[0].shape.rank == 0:
            tensor, entry = op.inputs[entry], None
        elif op.type in _SAME_VALUE:
            tensor = op.inputs[0]
        elif op.type in ("Add", "AddV2", "Sub"):
            found = _taken_off(op, entry)
            if found is None:
                return (tensor, entry), offset
            tensor, constant = found
            offset += constant
        else:
            return (tensor, entry), offset


def _taken_off(op: Any, entry: int | None) -> tuple[tf.Tensor, int] | None:
    a, b = op.inputs
    for term, other, sign in ((b, a, -1 if op.type == "Sub" else 1), (a, b, 1)):
        if op.type == "Sub" and term is a:
            continue
        known = constant_entry(term, entry)
        if known is not None and other.shape.rank == op.outputs[0].shape.rank:
            return other, sign * known
    return None


def _is_same(a: tf.Tensor, b: tf.Tensor, depth: int) -> bool:
    """Compare two tensors of the function by how they are computed."""
    if a is b or (a.op.name == b.op.name and a.graph is b.graph and a.value_index == b.value_index):
        return True
    ops = (a.op, b.op)
    if (
        depth == 0
        or ops[0].type != ops[1].type
        or a.value_index != b.value_index
        or any(is_stateful(op) or op.type == "Placeholder" for op in ops)
        or len(ops[0].inputs) != len(ops[1].inputs)
        or dict(ops[0].node_def.attr) != dict(ops[1].node_def.attr)
    ):
        return False
    return all(_is_same(x, y, depth - 1) for x, y in zip(ops[0].inputs, ops[1].inputs, strict=True))
