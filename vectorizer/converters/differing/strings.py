"""Strings taken apart: StringSplit, StringSplitV2, UnicodeDecode, DecodeRaw; and put together: UnicodeEncode, NGrams.

The strings of all rows go through one op; what it makes of each is cut apart again by row. How many pieces a string has
is known only when the graph runs.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, rows_of, same_op, wrap, wrap_differing
from vectorizer.converters.differing.operands import operand, rank_of, require, reshaped_rows
from vectorizer.differing import Differing, from_flat, longest, resized, rows_in

__all__ = ["SOURCES"]


def _split(pfor_input: Any) -> Any:
    """Shapes: strings [rows, n] -> places [rows, tokens, 2], tokens [rows, tokens], shape [rows, 2]."""
    strings = operand(pfor_input, 0)
    rows = rows_in(strings.dense, 0)
    n_strings = tf.broadcast_to(strings.size(0), [rows])
    if strings.lengths[0] is None:
        flat = tf.reshape(strings.dense, [-1])
    else:
        flat = strings.flat()
    if pfor_input.inputs[1].is_stacked:
        not_for_these("the separator depends on the example")
    places, tokens, shape = same_op(pfor_input, [flat, pfor_input.inputs[1].t])
    if strings.lengths[0] is None and rows_in(strings.dense, 1) == 1:
        return _split_of_one(pfor_input, places, tokens, shape[1])
    row = tf.gather(tf.repeat(tf.range(rows), n_strings), places[:, 0])
    n_tokens = tf.math.unsorted_segment_sum(tf.ones_like(row), row, rows)
    firsts = tf.cumsum(tf.cast(n_strings, tf.int64), exclusive=True)
    own_places = tf.stack([places[:, 0] - tf.gather(firsts, row), places[:, 1]], 1)
    widest = tf.maximum(tf.math.unsorted_segment_max(places[:, 1] + 1, row, rows), 0)
    outputs = pfor_input.outputs
    return [
        wrap_differing(from_flat(own_places, n_tokens), outputs[0].shape),
        wrap_differing(from_flat(tokens, n_tokens), outputs[1].shape),
        wrap(tf.stack([tf.cast(n_strings, tf.int64), widest], 1), stacked=True),
    ]


def _split_of_one(pfor_input: Any, places: tf.Tensor, tokens: tf.Tensor, width: tf.Tensor) -> Any:
    """Take each row's one string for a row of the batch: the op has put the tokens in their places.

    Shapes: places [tokens, 2], tokens [tokens], width []; the results as of ``_split``.
    """
    rows = rows_of(pfor_input)
    sizes = tf.stack([rows, tf.maximum(width, 1)])
    dense = tf.raw_ops.SparseToDense(
        sparse_indices=places, output_shape=sizes, sparse_values=tokens, default_value="", validate_indices=False
    )
    n_tokens = tf.math.unsorted_segment_sum(tf.ones_like(places[:, 0], tf.int32), places[:, 0], rows)
    place = tf.range(sizes[1])[tf.newaxis, :, tf.newaxis] * tf.constant([0, 1], tf.int64)
    place = tf.broadcast_to(place, [rows, *tf.unstack(tf.shape(place))[1:]])
    each = tf.ones([rows], tf.int64)
    return [
        wrap_differing(Differing(place, (n_tokens, None)), pfor_input.outputs[0].shape),
        wrap_differing(Differing(tf.ensure_shape(dense, [rows, None]), (n_tokens,)), pfor_input.outputs[1].shape),
        wrap(tf.stack([each, tf.cast(n_tokens, tf.int64)], 1), stacked=True),
    ]


def _decode(pfor_input: Any) -> Any:
    """Shapes: strings [rows, n] -> ends [rows, n + 1], characters [rows, characters]."""
    strings = operand(pfor_input, 0)
    if not strings.is_fixed:
        not_for_these("the number of strings depends on the example; decode them one by one, or as one string")
    rows, n = rows_in(strings.dense, 0), rows_in(strings.dense, 1)
    splits, *values = same_op(pfor_input, [tf.reshape(strings.dense, [-1])])
    places = tf.range(rows)[:, tf.newaxis] * n + tf.range(n + 1)
    ends = tf.gather(splits, places)
    lengths = ends[:, -1] - ends[:, 0]
    return [
        wrap(ends - ends[:, :1], stacked=True),
        *(
            wrap_differing(from_flat(value, lengths), output.shape)
            for value, output in zip(values, pfor_input.outputs[1:], strict=True)
        ),
    ]


def _pieces(pfor_input: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, Differing]:
    """Return the pieces of all rows, the ends of all rows' groups among them, groups of each row, and its own ends."""
    pieces, ends = operand(pfor_input, 0), operand(pfor_input, 1)
    rows = rows_in(pieces.dense, 0)
    n_pieces = tf.broadcast_to(pieces.size(0), [rows])
    flat = tf.reshape(pieces.dense, [-1]) if pieces.lengths[0] is None else pieces.flat()
    n_groups = tf.broadcast_to(ends.size(0), [rows]) - 1
    last = tf.gather(ends.dense, tf.maximum(n_groups, 0), batch_dims=1)
    fits = (ends.dense[:, 0] == 0) & (tf.cast(last, tf.int32) == n_pieces) & (n_groups >= 0)
    flat = require(fits, flat, "the groups of strings do not cover them")
    firsts = tf.cast(tf.cumsum(n_pieces, exclusive=True), ends.dense.dtype)
    own = Differing(ends.dense[:, 1:] + firsts[:, tf.newaxis], (n_groups,))
    return flat, tf.concat([tf.zeros([1], ends.dense.dtype), own.flat()], 0), n_groups, ends


def _encode(pfor_input: Any) -> Any:
    flat, all_ends, n_groups, ends = _pieces(pfor_input)
    (strings,) = same_op(pfor_input, [flat, all_ends])
    made = from_flat(strings, n_groups)
    if ends.is_fixed and isinstance(rows_in(ends.dense, 1), int):
        return wrap(resized(made.dense, 1, rows_in(ends.dense, 1) - 1), stacked=True)
    return wrap_differing(made, pfor_input.outputs[0].shape)


def _ngrams(pfor_input: Any) -> Any:
    flat, all_ends, n_groups, ends = _pieces(pfor_input)
    ngrams, made_ends = same_op(pfor_input, [flat, all_ends])
    first_group = tf.cumsum(n_groups, exclusive=True)[:, tf.newaxis]
    begin = tf.gather(made_ends, first_group)
    lengths = tf.gather(made_ends, first_group + n_groups[:, tf.newaxis]) - begin
    places = tf.minimum(first_group + tf.range(rows_in(ends.dense, 1)), tf.size(made_ends) - 1)
    own_ends = Differing(tf.gather(made_ends, places) - begin, ends.lengths)
    return [
        wrap_differing(from_flat(ngrams, lengths[:, 0]), pfor_input.outputs[0].shape),
        wrap_differing(own_ends, pfor_input.outputs[1].shape),
    ]


def _decode_raw(pfor_input: Any) -> Any:
    """Shapes: strings [rows, *s] -> numbers [rows, *s, n]. The strings of one example have the same length."""
    strings, rank = operand(pfor_input, 0), rank_of(pfor_input, 0)
    if not strings.is_fixed:
        not_for_these("the number of strings depends on the example")
    dtype = pfor_input.get_attr("out_type")
    n_bytes = tf.strings.length(strings.dense)
    each = reshaped_rows(n_bytes, [-1])
    lengths = each[:, 0] // dtype.size
    fits = tf.reduce_all((each == each[:, :1]) & (each % dtype.size == 0), 1)
    padded = require(fits, strings.dense, "strings to decode differ in length, or are no whole numbers")
    made = tf.raw_ops.DecodePaddedRaw(
        input_bytes=padded,
        fixed_length=longest(lengths) * dtype.size,
        out_type=dtype,
        little_endian=pfor_input.get_attr("little_endian"),
    )
    return wrap_differing(Differing(made, (*(None,) * rank, lengths)), pfor_input.outputs[0].shape)


SOURCES: dict[str, Converter] = {
    "DecodeRaw": _decode_raw,
    "StringNGrams": _ngrams,
    "StringSplit": _split,
    "StringSplitV2": _split,
    "UnicodeDecode": _decode,
    "UnicodeDecodeWithOffsets": _decode,
    "UnicodeEncode": _encode,
}
