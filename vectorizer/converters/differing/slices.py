"""Slices whose size depends on the example: ``x[:n]``, ``tf.slice`` with sizes of each row; slices of what differs.

A dimension is cut at a time. Where a row's slice begins at 0 its elements are where they were, and only its length is
new; elsewhere they are gathered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, wrap_differing
from vectorizer.converters.differing.operands import operand, rank_of, require
from vectorizer.converters.expressions import constant_difference
from vectorizer.converters.slicing import bit, entries, placed
from vectorizer.differing import Differing, resized, rows_in

__all__ = ["SOURCES"]


@dataclass(frozen=True, slots=True)
class _Part:
    """The slice of one dimension. Ends are numbers, int32 [] or [rows], or None: as far as it goes."""

    begin: Any
    end: Any
    step: int = 1
    #: Most elements, where the way in which the ends were computed shows it.
    most: int | None = None
    #: Whether one out of range is refused, as ``tf.slice`` does it, or cut short.
    is_strict: bool = False


def _strided_slice(pfor_input: Any) -> Any:
    op = pfor_input.op
    rank = rank_of(pfor_input, 0)
    begins, ends, steps = (entries(op.inputs[index]) for index in (1, 2, 3))
    value = operand(pfor_input, 0)
    dim = 0
    for entry in placed(op, rank, len(begins)):
        if entry == "new":
            value = Differing(tf.expand_dims(value.dense, dim + 1), (*value.lengths[:dim], None, *value.lengths[dim:]))
            dim += 1
        elif entry is None:
            dim += 1
        elif bit(op, "shrink_axis_mask", entry):
            value = _picked(value, dim, _end(pfor_input, 1, entry, begins[entry]))
        else:
            step = steps[entry]
            if step is None:
                not_for_these("the stride is not a constant")
            has_begin, has_end = (not bit(op, mask, entry) for mask in ("begin_mask", "end_mask"))
            apart = constant_difference(op.inputs[2], op.inputs[1], entry) if has_begin and has_end else None
            part = _Part(
                begin=_end(pfor_input, 1, entry, begins[entry]) if has_begin else None,
                end=_end(pfor_input, 2, entry, ends[entry]) if has_end else None,
                step=step,
                most=None if apart is None or step < 0 else max(apart, 0),
            )
            value = _cut(value, dim, part)
            dim += 1
    return wrap_differing(value, pfor_input.outputs[0].shape)


def _slice(pfor_input: Any) -> Any:
    begins, sizes = (entries(pfor_input.op.inputs[index]) for index in (1, 2))
    value = operand(pfor_input, 0)
    for dim in range(rank_of(pfor_input, 0)):
        begin = _end(pfor_input, 1, dim, begins[dim])
        size = _end(pfor_input, 2, dim, sizes[dim])
        if isinstance(size, int) and size == -1:
            value = _cut(value, dim, _Part(begin=begin, end=None, is_strict=True))
            continue
        # -1 means up to the end in a size of each row too.
        end = begin + size if isinstance(size, int) else tf.where(size < 0, value.size(dim), begin + size)
        most = size if isinstance(size, int) else None
        value = _cut(value, dim, _Part(begin=begin, end=end, most=most, is_strict=True))
    return wrap_differing(value, pfor_input.outputs[0].shape)


def _end(pfor_input: Any, position: int, entry: int, known: int | None) -> Any:
    """Return an end of a slice: a number where it is known, else int32 [] or [rows]."""
    return tf.cast(pfor_input.inputs[position].t[..., entry], tf.int32) if known is None else known


def _picked(value: Differing, dim: int, index: Any) -> Differing:
    """Take one element of a dimension."""
    axis, size = dim + 1, value.size(dim)
    rest = (*value.lengths[:dim], *value.lengths[dim + 1 :])
    place = tf.convert_to_tensor(index, tf.int32)
    place = tf.where(place < 0, place + size, place)
    is_there = (place >= 0) & (place < size)
    dense = require(tf.reshape(is_there, [-1]), value.dense, "an index is out of range")
    place = tf.clip_by_value(place, 0, rows_in(value.dense, axis) - 1)
    if place.shape.rank == 0:
        return Differing(tf.gather(dense, place, axis=axis), rest)
    return Differing(tf.squeeze(tf.gather(dense, place[:, tf.newaxis], axis=axis, batch_dims=1), axis), rest)


def _cut(value: Differing, dim: int, part: _Part) -> Differing:
    axis, size, width = dim + 1, value.size(dim), rows_in(value.dense, dim + 1)
    if part.begin is None and part.end is None and part.step == 1:
        return value
    if value.lengths[dim] is None and isinstance(width, int) and not _is_of_rows(part):
        part = replace(part, begin=part.begin, end=part.end)
        span = slice(part.begin, part.end, part.step)
        cut = value.dense[(slice(None),) * axis + (span,)]
        _check_strict(part, width)
        return Differing(cut, value.lengths)
    begin, end = _clipped(part, size)
    step = part.step
    count = tf.maximum(-tf.math.floordiv(begin - end, step), 0)
    count = tf.broadcast_to(count, tf.shape(value.dense)[:1])
    dense = value.dense
    if part.is_strict:
        raw = tf.convert_to_tensor(part.begin, tf.int32), end if part.end is None else part.end
        fits = (raw[0] >= 0) & (raw[0] <= size) & (raw[1] <= size)
        dense = require(tf.reshape(fits, [-1]), dense, "a slice reaches beyond the end")
    most = _most(part, width)
    lengths = (*value.lengths[:dim], count, *value.lengths[dim + 1 :])
    if step == 1 and (part.begin is None or (isinstance(part.begin, int) and part.begin == 0)):
        return Differing(resized(dense, axis, most), lengths)
    places = tf.broadcast_to(begin, tf.shape(count))[:, tf.newaxis] + tf.range(most) * step
    places = tf.clip_by_value(places, 0, width - 1)
    return Differing(tf.gather(dense, places, axis=axis, batch_dims=1), lengths)


def _is_of_rows(part: _Part) -> bool:
    return not all(end is None or isinstance(end, int) for end in (part.begin, part.end))


def _check_strict(part: _Part, width: int) -> None:
    if part.is_strict and not (0 <= part.begin <= (width if part.end is None else part.end) <= width):
        not_for_these("a slice reaches beyond the end")


def _clipped(part: _Part, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return where a row's slice begins and ends, by Python's rules."""
    low, high = (0, size) if part.step > 0 else (-1, size - 1)

    def clipped(end: Any, default: Any) -> tf.Tensor:
        if end is None:
            return tf.convert_to_tensor(default, tf.int32)
        end = tf.convert_to_tensor(end, tf.int32)
        if not part.is_strict:
            end = tf.where(end < 0, end + size, end)
        return tf.minimum(tf.maximum(end, low), high)

    return (
        (clipped(part.begin, low), clipped(part.end, high))
        if part.step > 0
        else (
            clipped(part.begin, high),
            clipped(part.end, low),
        )
    )


def _most(part: _Part, width: Any) -> Any:
    """Return a padded size that holds every row's slice: a number if the ends or the padded size show one."""
    bounds = [-(-width // abs(part.step))] if isinstance(width, int) else []
    if part.most is not None:
        bounds.append(-(-part.most // abs(part.step)))
    if part.step > 0 and isinstance(part.end, int) and part.end >= 0:
        begin = part.begin if isinstance(part.begin, int) and part.begin >= 0 else 0
        bounds.append(-(-max(part.end - begin, 0) // part.step))
    return max(min(bounds), 1) if bounds else width


SOURCES: dict[str, Converter] = {"Slice": _slice, "StridedSlice": _strided_slice}
