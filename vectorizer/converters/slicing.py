"""Slices that begin elsewhere in each row: StridedSlice (``x[i]``, ``x[i : i + 3]``), its derivative, and Slice.

pfor loops over the rows or fails. What all rows agree on is sliced first, once; each dimension in which they differ
becomes a gather. Here a slice has the same size in each row: ``tf.slice`` says its size, and for ``x[i : i + 3]`` it is
found by comparing how the two ends were computed. Any other is for ``differing/slices.py``. Where an index is out of
range, or the slice of a row is shorter because TensorFlow cuts it at the end of ``x``, the row fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, stacked, stock_registry, wrap
from vectorizer.converters.constants import known_operand
from vectorizer.converters.expressions import constant_difference
from vectorizer.converters.folding import reshape_to, sizes
from vectorizer.converters.stacking import numbered, repeated

__all__ = ["CONVERTERS", "bit", "entries", "placed", "planned", "sliced"]


@dataclass(frozen=True, slots=True)
class _Moving:
    """A dimension in which the slices of the rows begin at different places."""

    dim: int
    #: Row by row [rows] or shared []: where the slice begins and, unless ``count`` is certain, ends.
    begin: tf.Tensor
    end: tf.Tensor | None
    stride: int
    count: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """A strided slice: what the rows agree on, then what they differ in, then which dimensions go and come."""

    fixed: list[slice]
    moving: list[_Moving]
    shrunk: list[int]
    new: list[int]


def _strided_slice(pfor_input: Any) -> Any:
    if not any(given.is_stacked for given in pfor_input.inputs[1:4]):
        return stock_registry()["StridedSlice"](pfor_input)
    plan = planned(pfor_input, pfor_input.op.inputs[0].shape.rank)
    result, is_stacked = sliced(pfor_input.input(0), plan.fixed, plan.moving)
    if plan.shrunk:
        result = tf.squeeze(result, [dim + is_stacked for dim in plan.shrunk])
    for dim in plan.new:
        result = tf.expand_dims(result, dim + is_stacked)
    return wrap(result, stacked=is_stacked)


def _strided_slice_gradient(pfor_input: Any) -> Any:
    """Put the gradients back where the slice took the elements from: the places are the slice of all places."""
    if not any(given.is_stacked for given in pfor_input.inputs[1:4]):
        return stock_registry()["StridedSliceGrad"](pfor_input)
    shape = known_operand(pfor_input, 0)
    if shape is None or pfor_input.input(0).is_stacked:
        not_for_these("the size of what was sliced is not known")
    plan = planned(pfor_input, len(shape))
    size = int(np.prod(shape))
    places, is_stacked = sliced(
        wrap(tf.reshape(tf.range(size, dtype=tf.int64), shape), stacked=False), plan.fixed, plan.moving
    )
    gradients = stacked(pfor_input.input(4), pfor_input)
    rows = sizes(gradients)[0]
    own = tf.reshape(places if is_stacked else repeated(places, rows, axis=0), [rows, -1, 1])
    spread_out = tf.scatter_nd(
        numbered(own), tf.reshape(gradients, [rows, -1]), tf.cast(tf.stack([rows, size]), tf.int64)
    )
    return wrap(reshape_to(spread_out, [rows, *map(int, shape)]), stacked=True)


def planned(pfor_input: Any, rank: int | None) -> _Plan:
    """Tell what all rows agree on from what they differ in, of a slice of a tensor of ``rank`` dimensions.

    Errors: ConversionNotImplementedError if the slices of the rows may differ in size.
    """
    op = pfor_input.op
    begin, end, strides = pfor_input.inputs[1:4]
    if strides.is_stacked:
        not_for_these("the stride, and so the size of the slice, differs from row to row")
    n_entries = op.inputs[1].shape[0]
    if rank is None or n_entries is None:
        not_for_these("the number of dimensions is not known")
    begins, ends, steps = (entries(op.inputs[index]) for index in (1, 2, 3))

    fixed: list[slice] = []
    moving: list[_Moving] = []
    shrunk: list[int] = []
    new: list[int] = []
    n_out = 0
    for entry in placed(op, rank, n_entries):
        if entry is None or entry == "new":
            if entry == "new":
                new.append(n_out)
            else:
                fixed.append(slice(None))
            n_out += 1
            continue
        dim = len(fixed)
        step = steps[entry]
        if step is None:
            not_for_these("the stride is not a constant")
        has_begin = not bit(op, "begin_mask", entry)
        has_end = not bit(op, "end_mask", entry)
        first, last = begins[entry], ends[entry]
        fixed.append(slice(None))
        if bit(op, "shrink_axis_mask", entry):
            shrunk.append(dim)
            if first is None:
                moving.append(_Moving(dim=dim, begin=begin.t[..., entry], end=None, stride=1, count=1))
            else:
                fixed[dim] = slice(first, None if first == -1 else first + 1)
            continue
        n_out += 1
        if (first is not None or not has_begin) and (last is not None or not has_end):
            fixed[dim] = slice(first if has_begin else None, last if has_end else None, step)
            continue
        span = constant_difference(op.inputs[2], op.inputs[1], entry) if has_begin and has_end else None
        count = 0 if span is None else -(-span // step)
        if count <= 0:
            not_for_these(
                "the size of the slice may differ from row to row; begin and end must be a constant apart, as in "
                "x[i : i + 3], or use tf.slice with a constant size"
            )
        moving.append(_Moving(dim=dim, begin=begin.t[..., entry], end=end.t[..., entry], stride=step, count=count))
    return _Plan(fixed=fixed, moving=moving, shrunk=shrunk, new=new)


def _slice(pfor_input: Any) -> Any:
    op = pfor_input.op
    value, begin, size = pfor_input.inputs
    if not begin.is_stacked and not size.is_stacked:
        return stock_registry()["Slice"](pfor_input)
    if size.is_stacked:
        not_for_these("the size of the slice differs from row to row")
    rank = op.inputs[0].shape.rank
    if rank is None:
        not_for_these("the number of dimensions is not known")
    begins, counts = entries(op.inputs[1]), entries(op.inputs[2])
    fixed: list[slice] = []
    moving: list[_Moving] = []
    for dim in range(rank):
        first, count = begins[dim], counts[dim]
        if count is None:
            not_for_these("the size of the slice is not a constant")
        fixed.append(slice(None))
        if first is not None:
            _check_fixed(op, dim, first, count)
            fixed[dim] = slice(first, None if count == -1 else first + count)
        elif count <= 0:
            not_for_these("a slice up to the end (or of size 0) that begins elsewhere in each row")
        else:
            moving.append(_Moving(dim=dim, begin=begin.t[..., dim], end=None, stride=1, count=count))
    result, is_stacked = sliced(value, fixed, moving, negative_from_end=False)
    return wrap(result, stacked=is_stacked)


def _check_fixed(op: Any, dim: int, first: int, count: int) -> None:
    """tf.slice refuses what Python's slices cut short."""
    size = op.inputs[0].shape[dim]
    if size is None or first < 0 or first + max(count, 0) > size:
        not_for_these(f"the size of dimension {dim} is not known to hold the slice")


def entries(vector: tf.Tensor) -> list[int | None]:
    """Return the entries of a vector of the function that are constants."""
    known = tf.get_static_value(vector, partial=True)
    if known is None:
        return [None] * (vector.shape[0] or 0)
    return [None if one is None else int(one) for one in np.asarray(known, object)]


def bit(op: Any, mask: str, entry: int) -> bool:
    return bool(op.get_attr(mask) >> entry & 1)


def placed(op: Any, rank: int, n_entries: int) -> list[Any]:
    """Return what each dimension comes from: an entry's number, None for all of it, or ``new``."""
    kinds: list[Any] = []
    for entry in range(n_entries):
        if bit(op, "ellipsis_mask", entry):
            kinds.append(...)
        elif bit(op, "new_axis_mask", entry):
            kinds.append("new")
        else:
            kinds.append(entry)
    if ... not in kinds:
        kinds.append(...)
    whole = rank - sum(isinstance(kind, int) for kind in kinds)
    place = kinds.index(...)
    return [*kinds[:place], *[None] * whole, *kinds[place + 1 :]]


def sliced(
    value: Any, fixed: list[slice], moving: list[_Moving], *, negative_from_end: bool = True
) -> tuple[tf.Tensor, bool]:
    """Slice without dropping dimensions, and say whether the result is stacked."""
    result, is_stacked = value.t, value.is_stacked
    if any(part != slice(None) for part in fixed):
        result = result[(slice(None), *fixed)] if is_stacked else result[tuple(fixed)]
    for part in moving:
        axis = part.dim + is_stacked
        known = result.shape[axis]
        size = tf.shape(result, tf.int64)[axis] if known is None else tf.constant(known, tf.int64)
        places = _places(part, size, negative_from_end=negative_from_end)
        if is_stacked:
            if places.shape.rank == 1:
                result = tf.gather(result, places, axis=axis)
                continue
            result = tf.gather(result, places, axis=axis, batch_dims=1)
        else:
            result = tf.gather(result, places, axis=axis)
            if places.shape.rank == 2:
                result = tf.transpose(result, [axis, *range(axis), *range(axis + 1, result.shape.rank)])
                is_stacked = True
    return result, is_stacked


def _places(part: _Moving, size: tf.Tensor, *, negative_from_end: bool) -> tf.Tensor:
    """Return the index of each element, one out of range if the row's slice is not as long as the others.

    Shapes: [rows, count], or [count] if the rows agree after all.
    """
    first = tf.cast(part.begin, tf.int64)
    if negative_from_end:
        first = tf.where(first < 0, first + size, first)
    if part.end is not None:
        last = tf.cast(part.end, tf.int64)
        last = tf.where(last < 0, last + size, last)
        low, high = (tf.constant(0, tf.int64), size) if part.stride > 0 else (tf.constant(-1, tf.int64), size - 1)
        first, last = tf.clip_by_value(first, low, high), tf.clip_by_value(last, low, high)
        count = -tf.math.floordiv(first - last, part.stride)
        first = tf.where(tf.equal(count, part.count), first, size)
    steps = tf.range(part.count, dtype=tf.int64) * part.stride
    if part.stride < 0 and part.end is not None:
        # Counting down from beyond the end would come back into range.
        return tf.where(first[..., tf.newaxis] >= size, size, first[..., tf.newaxis] + steps)
    return first[..., tf.newaxis] + steps


CONVERTERS: dict[str, Converter] = {
    "Slice": _slice,
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_gradient,
}
