"""The forms of what is made of several values: lists, stacks, optional values; and the form of any value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from vectorizer._pfor import differing, list_content, wrap_list
from vectorizer.converters.constants import folded_constant
from vectorizer.converters.contents import Content, Depth, Optional, Stack
from vectorizer.converters.forms import ConstantForm, Form, HandleForm, Leaf, TensorForm, padded, repeated, unlike
from vectorizer.converters.known import lent
from vectorizer.converters.rows import rows_at

__all__ = ["ListForm", "OptionalForm", "StackForm", "cut", "flat", "form_of"]

#: Larger constants are cheaper as tensors.
_MOST_CONSTANT = 64


@dataclass(frozen=True, slots=True)
class ListForm(Form):
    """A list of known length. A blank one has no leaves."""

    n: int
    dtype: tf.DType
    element: tuple[int, ...] | None
    is_blank: bool
    per_row: bool
    #: As in ``Content``.
    is_bounded: bool = False

    def leaves(self, rows: int) -> list[Leaf]:
        if self.is_blank or self.element is None:
            return []
        shape = (self.n, rows, *self.element) if self.per_row else (self.n, *self.element)
        return [Leaf(self.dtype, shape, 1 if self.per_row else None, is_written=True, level=1)]

    def joined(self, other: Form) -> Form:
        if not isinstance(other, ListForm) or self.dtype != other.dtype:
            raise unlike(self, other)
        if self.n != other.n or (None not in (self.element, other.element) and self.element != other.element):
            raise NotImplementedError(
                "a TensorArray is replaced by one of another length, or of other elements: give it its largest size "
                "and its element_shape, tf.TensorArray(dtype, size=n, element_shape=shape)"
            )
        return ListForm(
            self.n,
            self.dtype,
            other.element if self.element is None else self.element,
            is_blank=self.is_blank and other.is_blank,
            per_row=self.per_row or other.per_row,
            is_bounded=self.is_bounded and other.is_bounded,
        )

    def stacked(self) -> Form:
        return replace(self, is_blank=self.element is None, per_row=self.element is not None)

    def widened(self, leaves: Sequence[tf.Tensor], to: Any, rows: int, leads: tuple[Any, ...]) -> list[tf.Tensor]:
        if not leaves:
            return [leaf.blank(leads) for leaf in to.leaves(rows)]
        return list(leaves) if self.per_row == to.per_row else [repeated(leaves[0], rows, axis=len(leads) + 1)]

    def built(self, leaves: Sequence[tf.Tensor]) -> Any:
        content = Content(self.n, self.dtype, self.element, is_bounded=self.is_bounded)
        return wrap_list(replace(content, dense=leaves[0], per_row=self.per_row) if leaves else content)


@dataclass(frozen=True, slots=True)
class StackForm(Form):
    """A stack: its depth, then its elements."""

    dtype: tf.DType
    capacity: int | None
    element: Any
    per_row_depth: bool
    shape: tuple[int, ...] | None

    def leaves(self, rows: int) -> list[Leaf]:
        depth = Leaf(tf.int32, (rows,) if self.per_row_depth else (), 0 if self.per_row_depth else None, is_depth=True)
        return (
            [depth]
            if self.element is None
            else [
                depth,
                *(leaf.inside(self.capacity) for leaf in self.element.leaves(rows)),
            ]
        )

    def joined(self, other: Form) -> Form:
        if not isinstance(other, StackForm) or self.dtype != other.dtype:
            raise unlike(self, other)
        pair = (self.element, other.element)
        capacities = (self.capacity, other.capacity)
        return StackForm(
            self.dtype,
            None if None in capacities else max(capacities),  # type: ignore[type-var]
            next((one for one in pair if one is not None), None) if None in pair else pair[0].joined(pair[1]),
            per_row_depth=self.per_row_depth or other.per_row_depth,
            shape=self.shape if self.shape == other.shape else None,
        )

    def stacked(self) -> Form:
        return replace(self, per_row_depth=True, element=None if self.element is None else self.element.stacked())

    def widened(self, leaves: Sequence[tf.Tensor], to: Any, rows: int, leads: tuple[Any, ...]) -> list[tf.Tensor]:
        depth, *rest = leaves
        if to.per_row_depth and not self.per_row_depth:
            depth = repeated(depth, rows, axis=len(leads))
        if to.element is None:
            return [depth]
        room: Any = to.capacity
        if room is not None:
            rest = [padded(leaf, len(leads), room) for leaf in rest]
        else:
            room = tf.shape(rest[0])[len(leads)] if rest else tf.reduce_max(depth) + 1
        if self.element is None:
            return [depth, *(leaf.blank((*leads, room)) for leaf in to.element.leaves(rows))]
        return [depth, *self.element.widened(rest, to.element, rows, (*leads, room))]

    def built(self, leaves: Sequence[tf.Tensor]) -> Any:
        depth, *rest = leaves
        return wrap_list(
            Stack(
                self.dtype,
                Depth(depth, per_row=self.per_row_depth),
                self.capacity,
                self.element,
                tuple(rest),
                shape=self.shape,
            )
        )


@dataclass(frozen=True, slots=True)
class OptionalForm(Form):
    """An optional value. Nobody asks whether there is one: only the gradient of the branch that made it reads it."""

    parts: tuple[Form, ...] | None

    def leaves(self, rows: int) -> list[Leaf]:
        return [leaf for part in self.parts or () for leaf in part.leaves(rows)]

    def joined(self, other: Form) -> Form:
        if not isinstance(other, OptionalForm):
            raise unlike(self, other)
        if self.parts is None or other.parts is None:
            return other if self.parts is None else self
        return OptionalForm(tuple(a.joined(b) for a, b in zip(self.parts, other.parts, strict=True)))

    def stacked(self) -> Form:
        return OptionalForm(None if self.parts is None else tuple(part.stacked() for part in self.parts))

    def widened(self, leaves: Sequence[tf.Tensor], to: Any, rows: int, leads: tuple[Any, ...]) -> list[tf.Tensor]:
        if self.parts is None:
            return [leaf.blank(leads) for leaf in to.leaves(rows)]
        made: list[tf.Tensor] = []
        for part, wider, own in zip(self.parts, to.parts, _dealt(self.parts, leaves, rows), strict=True):
            made.extend(part.widened(own, wider, rows, leads))
        return made

    def built(self, leaves: Sequence[tf.Tensor]) -> Any:
        if self.parts is None:
            return wrap_list(Optional(None))
        dealt = _dealt(self.parts, leaves, 1)
        return wrap_list(Optional(tuple(part.built(own) for part, own in zip(self.parts, dealt, strict=True))))


def form_of(value: Any, *, may_be_constant: bool = False) -> Form:
    """Return the form of a wrapped value, with a constant as such if it may be one.

    Errors: NotImplementedError for what differs in length, and what has no form.
    """
    if differing(value):
        raise NotImplementedError(
            "a value whose length differs from example to example can be read in a loop, but not be a loop variable, "
            "nor be kept for a gradient; carry a tensor of its largest size and the number of valid elements"
        )
    content = list_content(value)
    if isinstance(content, Content):
        assert content.pending is None, "a write that is pending is made first"
        return ListForm(
            content.n, content.dtype, content.element, content.dense is None, content.per_row, content.is_bounded
        )
    if isinstance(content, Stack):
        return StackForm(content.dtype, content.capacity, content.element, content.depth.per_row, content.shape)
    if isinstance(content, Optional):
        return OptionalForm(None if content.values is None else tuple(form_of(part) for part in content.values))
    if value.t.dtype == tf.variant:
        if value.is_stacked:
            raise NotImplementedError("a list of TensorFlow's own is different in each row")
        return HandleForm(value.t)
    shape = value.t.shape[1:] if value.is_stacked else value.t.shape
    if may_be_constant and not value.is_stacked and (shape.num_elements() or _MOST_CONSTANT + 1) <= _MOST_CONSTANT:
        known = folded_constant(value.t)
        if known is not None and known.dtype != object:
            return ConstantForm(value.t.dtype, known.shape, tuple(known.reshape([-1]).tolist()))
    return TensorForm(value.t.dtype, None if shape.rank is None else tuple(shape.as_list()), value.is_stacked)


def flat(value: Any, form: Form, rows: int, *, may_be_constant: bool = False) -> list[tf.Tensor]:
    """Return the leaves of a wrapped value in a form that it fits in."""
    return form_of(value, may_be_constant=may_be_constant).widened(
        _own_leaves(value, may_be_constant=may_be_constant), form, rows, ()
    )


def cut(value: Any, places: tf.Tensor, rows: int) -> Any:
    """Return a wrapped value for the rows at ``places`` alone. ``rows`` is how many it has."""
    if list_content(value) is None:
        return lent(value, places)
    return form_of(value).built(
        [
            rows_at(tensor, places, leaf.axis)
            for tensor, leaf in zip(_own_leaves(value), form_of(value).leaves(rows), strict=True)
        ]
    )


def _own_leaves(value: Any, *, may_be_constant: bool = False) -> list[tf.Tensor]:
    content = list_content(value)
    if isinstance(content, Content):
        return [] if content.dense is None else [content.dense]
    if isinstance(content, Stack):
        return [content.depth.tensor(), *content.leaves]
    if isinstance(content, Optional):
        return [leaf for part in content.values or () for leaf in _own_leaves(part)]
    if may_be_constant and isinstance(form_of(value, may_be_constant=True), ConstantForm):
        return []
    return [value.t]


def _dealt(parts: Sequence[Form], leaves: Sequence[tf.Tensor], rows: int) -> list[list[tf.Tensor]]:
    """Give each part its leaves."""
    left = list(leaves)
    dealt = []
    for part in parts:
        n = len(part.leaves(rows))
        dealt.append(left[:n])
        left = left[n:]
    return dealt
