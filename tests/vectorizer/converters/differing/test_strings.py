"""Strings taken apart: as many tokens, characters or numbers as each row's string has."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.vectorizer.converters.differing.test_selections import BUCKETS
from tests.vectorizer.converters.loopless import check_loopless

LINES = np.array(["", "b a a", "  ", "hören wir b c a"], object)
PAIRS = np.array([["", "a b"], ["", ""], ["x y z", "u"], ["1", "2 3 4"]], object)


def test_a_bag_of_tokens_is_looked_up_and_averaged() -> None:
    keys = tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b"]), tf.constant([1, 2], tf.int64))
    table = tf.lookup.StaticHashTable(keys, 0)
    vectors = tf.Variable(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))

    def bag(line: tf.Tensor) -> dict[str, Any]:
        tokens = tf.strings.split(tf.strings.lower(line))
        rows = tf.nn.embedding_lookup(vectors, table.lookup(tokens))
        return {
            "tokens": tokens,
            "n": tf.size(tokens),
            "mean": tf.math.divide_no_nan(tf.reduce_sum(rows, 0), tf.cast(tf.size(tokens), tf.float32)),
            "distinct": tf.size(tf.unique(tokens)[0]),
            "joined": tf.strings.reduce_join(tokens, separator="+"),
        }

    vectorized = check_loopless(bag, {"line": LINES}, buckets=BUCKETS)
    assert vectorized.outputs[0].dims == (None,)


def test_tokens_cut_and_padded_to_a_fixed_number() -> None:
    def first_three(line: tf.Tensor) -> tf.Tensor:
        tokens = tf.strings.split(line)[:3]
        padded = tf.pad(tokens, [[0, 3 - tf.size(tokens)]], constant_values="-")
        return tf.ensure_shape(tf.strings.join([padded, "!"]), [3])

    vectorized = check_loopless(first_three, {"line": LINES}, buckets=BUCKETS)
    assert vectorized.outputs[0].dims == (3,)


def test_tokens_of_several_strings_as_a_padded_table() -> None:
    vectorized = check_loopless(lambda lines: tf.strings.split(lines).to_tensor("."), {"lines": PAIRS}, buckets=BUCKETS)
    assert len(vectorized.outputs[0].dims) == 2


def test_characters_bytes_and_numbers_of_a_string() -> None:
    def apart(line: tf.Tensor) -> dict[str, Any]:
        codes, starts = tf.strings.unicode_decode_with_offsets(line, "UTF-8")
        return {
            "codes": codes,
            "starts": starts,
            "characters": tf.strings.unicode_split(line, "UTF-8"),
            "bytes": tf.strings.bytes_split(line),
            "raw": tf.io.decode_raw(line, tf.uint8),
        }

    check_loopless(apart, {"line": LINES}, buckets=(4,))


def test_ngrams_of_each_rows_tokens() -> None:
    def pairs(line: tf.Tensor, fixed: tf.Tensor) -> list[tf.Tensor]:
        return [tf.strings.ngrams(tf.strings.split(line), 2), tf.strings.ngrams(fixed, [1, 2])]

    check_loopless(pairs, {"line": LINES, "fixed": PAIRS}, buckets=(4,))


def test_numbers_in_a_line_are_read_and_a_line_without_any_is_a_sum_of_nothing() -> None:
    lines = np.array(["", "1 2.5 3", "-4", "7 7"], object)
    check_loopless(
        lambda line: tf.reduce_sum(tf.strings.to_number(tf.strings.split(line))), {"line": lines}, buckets=BUCKETS
    )


def test_tokens_of_one_string_are_not_counted_to_be_taken_whole() -> None:
    """The row splits of one row were forty ops for each example, and 736 for the batch: 7 times the time by hand."""
    ids = check_loopless(
        lambda line: {
            "all": tf.strings.to_hash_bucket_fast(tf.strings.split(line), 9),
            "by comma": tf.strings.split(line, "b"),
            "bytes": tf.strings.bytes_split(line),
            "last": tf.strings.split([line])[0][-1:],
        },
        {"line": LINES},
        buckets=(4,),
    )
    (graph,) = ids.graphs.values()
    types = [op.type for op in graph.graph.get_operations()]
    assert types.count("DenseBincount") == 0
    assert len(types) < 400


def test_tokens_that_are_not_all_are_still_counted() -> None:
    def but_the_first(line: tf.Tensor) -> tf.Tensor:
        ragged = tf.strings.split([line])
        return ragged.values[1 : tf.cast(ragged.row_splits[1], tf.int32)]

    check_loopless(but_the_first, {"line": LINES}, buckets=(4,))
    check_loopless(lambda pair: tf.strings.split(pair)[1], {"pair": PAIRS}, buckets=(4,))


def test_padding_of_vectors_takes_no_part_in_their_sum() -> None:
    table = tf.constant([[np.nan, np.inf], [1.0, 2.0], [3.0, 4.0]])

    def summed(line: tf.Tensor) -> tf.Tensor:
        tokens = tf.strings.split(line)
        return tf.reduce_sum(tf.gather(table, tf.where(tokens == "a", 1, 2)), 0)

    check_loopless(summed, {"line": LINES}, buckets=BUCKETS)
