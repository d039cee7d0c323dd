"""Strings, and tables that look them up: most of their ops take each element by itself, and so the rows too.

Ops whose result has another length for each string (StringSplit, DecodeRaw, UnicodeDecode) are in
``differing/strings.py``.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import (
    Converter,
    not_for_these,
    rows_of,
    same_op,
    stacked,
    stock_registry,
    wrap,
)
from vectorizer.converters.constants import known_operand
from vectorizer.converters.folding import batch_folding, sizes

__all__ = ["CONVERTERS"]

#: Elementwise in the first operand; further ones, such as a pattern, are scalars that all rows must share.
_ELEMENTWISE = (
    "AsString",
    "DecodeBase64",
    "DecodeCompressed",
    "DecodeJSONExample",
    "DecodePaddedRaw",
    "EncodeBase64",
    "RegexFullMatch",
    "RegexReplace",
    "StaticRegexFullMatch",
    "StaticRegexReplace",
    "StringLength",
    "StringLower",
    "StringStrip",
    "StringToHashBucket",
    "StringToHashBucketFast",
    "StringToHashBucketStrong",
    "StringToNumber",
    "StringUpper",
    "UnicodeScript",
    "UnicodeTranscode",
)


def _elementwise(pfor_input: Any) -> Any:
    first, *others = pfor_input.inputs
    if any(other.is_stacked for other in others):
        not_for_these("a pattern or length of it depends on the example")
    return wrap(same_op(pfor_input, [first.t, *(other.t for other in others)])[0], stacked=True)


def _join(pfor_input: Any) -> Any:
    shape = pfor_input.outputs[0].shape
    if not shape.is_fully_defined():
        not_for_these("the shape of what it joins is not known")
    return wrap(same_op(pfor_input, [_filled(pfor_input, k) for k in range(len(pfor_input.inputs))])[0], stacked=True)


def _substr(pfor_input: Any) -> Any:
    if not pfor_input.outputs[0].shape.is_fully_defined():
        not_for_these("the shape of what it cuts is not known")
    filled = [_filled(pfor_input, position) for position in range(3)]
    # The kernel broadcasts over two dimensions at most, and not at all over a vector.
    flat = [tf.reshape(value, [-1]) for value in filled]
    return wrap(tf.reshape(same_op(pfor_input, flat)[0], filled[0].shape), stacked=True)


def _filled(pfor_input: Any, position: int) -> tf.Tensor:
    """Return an operand with an element for each of the result's, for each row."""
    shape = pfor_input.outputs[0].shape.as_list()
    value = stacked(pfor_input.inputs[position], pfor_input)
    per_example = pfor_input.op.inputs[position].shape
    if per_example.rank is None:
        not_for_these("the shape of an operand is not known")
    rows = rows_of(pfor_input)
    aligned = tf.reshape(value, [rows, *[1] * (len(shape) - per_example.rank), *per_example.as_list()])
    return tf.broadcast_to(aligned, [rows, *shape])


def _reduce_join(pfor_input: Any) -> Any:
    axes = known_operand(pfor_input, 1)
    rank = pfor_input.op.inputs[0].shape.rank
    if axes is None or rank is None:
        not_for_these("the axes are not constants")
    if axes.size == 0:
        return wrap(tf.identity(pfor_input.stacked_input(0)), stacked=True)
    moved = tf.constant([int(axis) % rank + 1 for axis in axes.reshape([-1])], tf.int32)
    return wrap(same_op(pfor_input, [pfor_input.stacked_input(0), moved])[0], stacked=True)


def _encoded(pfor_input: Any) -> Any:
    """Encode code points; where each text ends, all rows agree."""
    codes, ends = pfor_input.stacked_input(0), pfor_input.unstacked_input(1)
    rows, size = sizes(codes)
    first = tf.cast(tf.range(rows) * size, ends.dtype)[:, tf.newaxis]
    all_ends = tf.concat([tf.reshape(ends[:-1] + first, [-1]), ends[-1:] + first[-1]], 0)
    return wrap(tf.reshape(same_op(pfor_input, [tf.reshape(codes, [-1]), all_ends])[0], [rows, -1]), stacked=True)


def _format(_pfor_input: Any) -> Any:
    """Refuse: pfor's own converter writes all rows into one text."""
    not_for_these("it writes one text for all rows; use tf.strings.as_string and tf.strings.join")


def _csv(pfor_input: Any) -> Any:
    if any(default.is_stacked for default in pfor_input.inputs[1:]):
        not_for_these("a default differs from row to row")
    return stock_registry()["DecodeCSV"](pfor_input)


def _find(pfor_input: Any) -> Any:
    table, keys, default = pfor_input.inputs
    if table.is_stacked or default.is_stacked:
        not_for_these("its table or default depends on the example")
    return wrap(same_op(pfor_input, [table.t, keys.t, default.t])[0], stacked=keys.is_stacked)


def _size(pfor_input: Any) -> Any:
    return wrap(same_op(pfor_input, [pfor_input.unstacked_input(0)])[0], stacked=False)


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    "DecodeCSV": _csv,
    "Fingerprint": batch_folding({0}),
    "LookupTableFindV2": _find,
    "LookupTableSizeV2": _size,
    "ReduceJoin": _reduce_join,
    "StringFormat": _format,
    "StringJoin": _join,
    "Substr": _substr,
    "UnicodeEncode": _encoded,
}
