"""How large an integer of the batched graph can be, read off how it is computed.

``tf.range(tf.minimum(n, 64))`` runs at most 64 steps for any example, and so does the loop of its gradient, which asks
the first loop how often it ran.
"""

from __future__ import annotations

import weakref
from typing import Any

import tensorflow as tf

from vectorizer.converters.constants import folded_constant

__all__ = ["remember_bound", "upper_bound"]

#: Of each graph, by the names of tensors: bounds of what loops leave.
_known: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()
_SAME_VALUES = frozenset({"BroadcastTo", "ExpandDims", "Identity", "Reshape", "Squeeze", "StopGradient", "Tile"})
#: How deep an expression is read.
_DEPTH = 16


def remember_bound(tensor: tf.Tensor, bound: int) -> None:
    """Note that no element of a tensor is larger."""
    _known.setdefault(tensor.graph, {})[tensor.name] = bound


def upper_bound(tensor: tf.Tensor, *, depth: int = _DEPTH) -> int | None:
    """Return a number that no element of an integer tensor exceeds; None if none is seen."""
    noted = _known.get(tensor.graph, {}).get(tensor.name)
    if noted is not None or depth == 0:
        return noted
    value = folded_constant(tensor)
    if value is not None:
        return int(value.max()) if value.size and value.dtype.kind in "iu" else None
    op = tensor.op
    if op.type == "Placeholder":
        outside = [outer for outer, inner in getattr(op.graph, "captures", ()) if inner is tensor]
        return upper_bound(outside[0], depth=depth - 1) if outside else None
    if op.type in _SAME_VALUES:
        return upper_bound(op.inputs[0], depth=depth - 1)
    if op.type == "Cast":
        is_integer = op.inputs[0].dtype.is_integer and tensor.dtype.is_integer
        return upper_bound(op.inputs[0], depth=depth - 1) if is_integer else None
    operands = {"Minimum": op.inputs, "Maximum": op.inputs, "ClipByValue": op.inputs[2:], "AddV2": op.inputs}
    bounds = [upper_bound(operand, depth=depth - 1) for operand in operands.get(op.type, ())]
    known = [bound for bound in bounds if bound is not None]
    if op.type == "Minimum":
        return min(known, default=None)
    if not known or len(known) < len(bounds):
        return None
    return sum(known) if op.type == "AddV2" else max(known)
