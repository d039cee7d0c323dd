"""The form of a converted value: which tensors it is made of, and which of them differ from row to row.

Theory of operation. A loop, a branch and a stack must all hold values of one form, whatever they are: a tensor, a
list, a stack, an optional value, or any of them within another. So each form says

1. its *leaves*: the tensors that it is made of, with the place of the rows in each, if it has them;
2. the least form that it and another both fit in (``joined``): shared joins stacked to stacked, unknown joins known to
   known, and one constant joins another to a tensor;
3. how leaves of this form become leaves of a wider one (``widened``), also below the further dimensions of a stack.

A constant has no leaves. Shapes that a gradient needs are computed in the forward loop and pushed to a stack; as
constants they come out of it as constants, and what is reshaped by them has a shape that is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import wrap

__all__ = ["ConstantForm", "Form", "HandleForm", "Leaf", "TensorForm", "padded", "repeated", "unlike"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor of a form. ``shape`` has the rows at ``axis``; None if all rows share it."""

    dtype: tf.DType
    shape: tuple[int | None, ...]
    axis: int | None
    #: Numbers of elements, not elements.
    is_depth: bool = False
    #: Elements of a list: what writes to them in a loop knows the mask.
    is_written: bool = False
    #: Of how many lists within each other these are the elements: where the rows would be.
    level: int = 0

    def inside(self, capacity: int | None) -> Leaf:
        """Return the leaf of as many elements."""
        axis = None if self.axis is None else self.axis + 1
        return replace(self, shape=(capacity, *self.shape), axis=axis, is_written=True, level=self.level + 1)

    def blank(self, leads: Sequence[Any] = ()) -> tf.Tensor:
        """Return zeros; what has no known size has room for one."""
        shape = [*leads, *(1 if size is None else size for size in self.shape)]
        return tf.zeros(shape if all(isinstance(size, int) for size in shape) else tf.stack(shape), self.dtype)


class Form(ABC):
    """What kind of value something is; each kind says how it is taken apart and put together."""

    @abstractmethod
    def leaves(self, rows: int) -> list[Leaf]:
        """Return what it is made of."""

    @abstractmethod
    def joined(self, other: Form) -> Form:
        """Return the least form that both fit in. Errors: NotImplementedError if there is none."""

    @abstractmethod
    def stacked(self) -> Form:
        """Return the form of which all leaves differ from row to row."""

    @abstractmethod
    def widened(self, leaves: Sequence[tf.Tensor], to: Any, rows: int, leads: tuple[Any, ...]) -> list[tf.Tensor]:
        """Return leaves of this form as leaves of a wider one. ``leads`` are dimensions before them."""

    @abstractmethod
    def built(self, leaves: Sequence[tf.Tensor]) -> Any:
        """Return the wrapped value that has these leaves."""


def unlike(one: Form, other: Form) -> NotImplementedError:
    """Say that two forms have nothing in common."""
    return NotImplementedError(f"one value is to hold a {_said(one)} and a {_said(other)}")


@dataclass(frozen=True, slots=True)
class TensorForm(Form):
    """A tensor. ``shape`` is that of one row."""

    dtype: tf.DType
    shape: tuple[int | None, ...] | None
    is_stacked: bool

    @property
    def is_fixed(self) -> bool:
        """Its shape is known when the graph is built."""
        return self.shape is not None and None not in self.shape

    def leaves(self, rows: int) -> list[Leaf]:
        if self.shape is None:
            raise NotImplementedError("a tensor of an unknown number of dimensions is kept in a list or loop")
        if self.is_stacked:
            return [Leaf(self.dtype, (rows, *self.shape), 0)]
        return [Leaf(self.dtype, self.shape, None)]

    def joined(self, other: Form) -> Form:
        if isinstance(other, ConstantForm):
            other = other.as_tensor()
        if not isinstance(other, TensorForm) or self.dtype != other.dtype:
            raise unlike(self, other)
        shape = None
        if self.shape is not None and other.shape is not None and len(self.shape) == len(other.shape):
            shape = tuple(a if a == b else None for a, b in zip(self.shape, other.shape, strict=True))
        return TensorForm(self.dtype, shape, self.is_stacked or other.is_stacked)

    def stacked(self) -> Form:
        return replace(self, is_stacked=True)

    def widened(self, leaves: Sequence[tf.Tensor], to: Any, rows: int, leads: tuple[Any, ...]) -> list[tf.Tensor]:
        if self.is_stacked or not to.is_stacked:
            return list(leaves)
        return [repeated(leaves[0], rows, axis=len(leads))]

    def built(self, leaves: Sequence[tf.Tensor]) -> Any:
        return wrap(leaves[0], stacked=self.is_stacked)


@dataclass(frozen=True, slots=True)
class ConstantForm(Form):
    """A tensor whose value is known when the graph is built, in a list that holds it everywhere."""

    dtype: tf.DType
    shape: tuple[int, ...]
    values: tuple[Any, ...]

    def as_tensor(self) -> TensorForm:
        return TensorForm(self.dtype, self.shape, is_stacked=False)

    def tensor(self) -> tf.Tensor:
        return tf.constant(np.array(self.values, self.dtype.as_numpy_dtype).reshape(self.shape), self.dtype)

    def leaves(self, _rows: int) -> list[Leaf]:
        return []

    def joined(self, other: Form) -> Form:
        return self if self == other else self.as_tensor().joined(other)

    def stacked(self) -> Form:
        return self

    def widened(self, _leaves: Sequence[tf.Tensor], to: Any, rows: int, leads: tuple[Any, ...]) -> list[tf.Tensor]:
        if to == self:
            return []
        everywhere = tf.broadcast_to(self.tensor(), tf.stack([*leads, *self.shape]) if leads else list(self.shape))
        everywhere = tf.ensure_shape(everywhere, [*map(_known, leads), *self.shape])
        return self.as_tensor().widened([everywhere], to, rows, leads)

    def built(self, _leaves: Sequence[tf.Tensor]) -> Any:
        return wrap(self.tensor(), stacked=False)


@dataclass(frozen=True, slots=True)
class HandleForm(Form):
    """A list that all rows share and whose content is not known: the variant itself."""

    #: One that is like it: it knows the shape of the elements.
    handle: tf.Tensor = field(compare=False)

    def leaves(self, _rows: int) -> list[Leaf]:
        return [Leaf(tf.variant, (), None)]

    def joined(self, other: Form) -> Form:
        if other != self:
            raise unlike(self, other)
        return self

    def stacked(self) -> Form:
        raise NotImplementedError("a list of which only TensorFlow knows the content is to differ from row to row")

    def widened(self, leaves: Sequence[tf.Tensor], _to: Any, _rows: int, _leads: tuple[Any, ...]) -> list[tf.Tensor]:
        return list(leaves)

    def built(self, leaves: Sequence[tf.Tensor]) -> Any:
        return wrap(leaves[0], stacked=False)


def padded(leaf: tf.Tensor, axis: int, size: int) -> tf.Tensor:
    """Return a leaf with room for ``size`` elements at ``axis``, where its size is known."""
    missing = size - leaf.shape[axis]
    if missing <= 0:
        return leaf
    return tf.pad(leaf, [[0, missing if dim == axis else 0] for dim in range(leaf.shape.rank)])


def repeated(value: tf.Tensor, rows: int, *, axis: int) -> tf.Tensor:
    """Repeat what all rows share for each of them, at ``axis``."""
    return tf.repeat(tf.expand_dims(value, axis), rows, axis=axis)


def _known(size: Any) -> int | None:
    return size if isinstance(size, int) else None


def _said(form: Form) -> str:
    return type(form).__name__.removesuffix("Form").lower()
