"""Small integers that are known before the graph runs, through the arithmetic that shapes are computed by.

A shape that is known is worth more than its tensor: what is reshaped by it, or a list that is as long, has a size that
is known too, and XLA needs that. TensorFlow sees through packing, but not through slices and sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import constant_of

__all__ = ["folded_constant", "known_operand"]

#: How deep an expression is read, and how large its values may be.
_DEPTH = 24
_MOST = 64


def _sliced(op: Any, value: np.ndarray, begin: np.ndarray, end: np.ndarray, strides: np.ndarray) -> np.ndarray | None:
    if op.get_attr("ellipsis_mask") or op.get_attr("new_axis_mask"):
        return None
    picks: list[Any] = []
    for dim, (first, last, step) in enumerate(zip(begin.tolist(), end.tolist(), strides.tolist(), strict=True)):
        if op.get_attr("shrink_axis_mask") >> dim & 1:
            picks.append(first)
            continue
        starts_at = None if op.get_attr("begin_mask") >> dim & 1 else first
        picks.append(slice(starts_at, None if op.get_attr("end_mask") >> dim & 1 else last, step))
    return np.asarray(value[tuple(picks)])


def _product(op: Any, value: np.ndarray, axes: np.ndarray) -> np.ndarray:
    return np.asarray(np.prod(value, tuple(axes.reshape([-1]).tolist()), keepdims=op.get_attr("keep_dims")))


def _gathered(op: Any, value: np.ndarray, indices: np.ndarray, axis: np.ndarray) -> np.ndarray | None:
    return None if op.get_attr("batch_dims") else np.take(value, indices, axis=int(axis))


def _squeezed(op: Any, value: np.ndarray) -> np.ndarray:
    return np.squeeze(value, tuple(op.get_attr("squeeze_dims")) or None)


#: Op type -> what it makes of its operands' values.
_ARITHMETIC: dict[str, Callable[..., np.ndarray | None]] = {
    "AddV2": lambda _, a, b: np.add(a, b),
    "ConcatV2": lambda _, *values: np.concatenate(values[:-1], int(values[-1])),
    "ExpandDims": lambda _, value, axis: np.expand_dims(value, int(axis)),
    "FloorDiv": lambda _, a, b: np.floor_divide(a, b) if np.all(b) else None,
    "FloorMod": lambda _, a, b: np.mod(a, b) if np.all(b) else None,
    "GatherV2": _gathered,
    "Identity": lambda _, value: value,
    "Maximum": lambda _, a, b: np.maximum(a, b),
    "Minimum": lambda _, a, b: np.minimum(a, b),
    "Mul": lambda _, a, b: np.multiply(a, b),
    "Pack": lambda op, *values: np.stack(values, op.get_attr("axis")),
    "Prod": _product,
    "Reshape": lambda _, value, shape: np.reshape(value, shape),
    "Squeeze": _squeezed,
    "StridedSlice": _sliced,
    "Sub": lambda _, a, b: np.subtract(a, b),
}


def folded_constant(tensor: tf.Tensor, *, depth: int = _DEPTH) -> Any:
    """Return the value of a tensor as an array where it is known before the graph runs, else None."""
    value = constant_of(tensor)
    fold = _ARITHMETIC.get(tensor.op.type)
    if value is not None or fold is None or depth == 0 or not tensor.dtype.is_integer:
        return value
    if (tensor.shape.num_elements() or _MOST + 1) > _MOST:
        return None
    operands = []
    for operand in tensor.op.inputs:
        known = folded_constant(operand, depth=depth - 1)
        if known is None:
            return None
        operands.append(known)
    made = fold(tensor.op, *operands)
    return None if made is None else np.asarray(made, tensor.dtype.as_numpy_dtype)


def known_operand(pfor_input: Any, position: int) -> Any:
    """Return the value of an operand as an array where it is known before the graph runs, else None.

    What the body of a loop, or the backward pass, takes from outside is known there only.
    """
    known = folded_constant(pfor_input.op.inputs[position])
    given = pfor_input.inputs[position]
    return folded_constant(given.t) if known is None and not given.is_stacked else known
