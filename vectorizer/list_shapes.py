"""What is known of the elements of tensor lists while a graph is traced again.

A list's own type says what was declared: often a batch of any size. What was put into it says more. TensorFlow forgets
that where a list enters a loop; without it, neither the loop's state nor its result has a shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

__all__ = ["ListShapes"]


@dataclass(frozen=True, slots=True)
class _Elements:
    """The shape of elements that were put in; ``all_of_them``: no other element can have another one."""

    shape: tf.TensorShape
    all_of_them: bool


class ListShapes:
    """The shapes of lists' elements, by the list's tensor."""

    def __init__(self) -> None:
        self._known: dict[Any, _Elements] = {}

    def follow(self, before: tf.Tensor, after: tf.Tensor) -> None:
        """Say that ``after`` is the list ``before``, in another graph or later."""
        if before.ref() in self._known:
            self._known[after.ref()] = self._known[before.ref()]

    def made(self, op_type: str, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]) -> None:
        """Note what an op puts into a list, and give what it takes out its shape."""
        if op_type == "TensorListFromTensor" and inputs[0].shape.rank:
            self._known[outputs[0].ref()] = _Elements(inputs[0].shape[1:], all_of_them=True)
            return
        known = self._known.get(inputs[0].ref()) if inputs else None
        if op_type == "TensorListSetItem":
            self._known[outputs[0].ref()] = _with_element(known, inputs[2].shape)
        elif known is None:
            return
        elif op_type == "Identity":
            self._known[outputs[0].ref()] = known
        elif op_type == "TensorListGetItem" and known.all_of_them:
            _refine(outputs[0], known.shape)
        elif op_type == "TensorListStack":
            # Elements that are stacked have one shape: that of any that was put in.
            _refine(outputs[0], tf.TensorShape([None]).concatenate(known.shape))


def _with_element(known: _Elements | None, shape: tf.TensorShape) -> _Elements:
    if known is None:
        return _Elements(shape, all_of_them=False)
    if known.shape.is_compatible_with(shape):
        return _Elements(known.shape.merge_with(shape), known.all_of_them and shape.is_fully_defined())
    return _Elements(tf.TensorShape(None), all_of_them=False)


def _refine(tensor: tf.Tensor, shape: tf.TensorShape) -> None:
    if tensor.shape.is_compatible_with(shape):
        tensor.set_shape(shape)
