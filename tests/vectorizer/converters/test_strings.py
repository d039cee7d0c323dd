"""Strings and tables: each element by itself, so that no op runs once for each row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, refused_ops
from tests.vectorizer.oracle import spec
from vectorizer import LoopedOpError, vectorize

WORDS = np.array(
    [b"Row wise", b" a b ", b"ABC", b"", b"7", "H\u00f6ren".encode(), b"aab", b"zz top"],
    dtype=object,
)
PAIRS = np.stack([WORDS, WORDS[::-1]], axis=1)
COUNTS = np.array([0, 1, 2, 0, 1, 2, 1, 0], np.int32)

ELEMENTWISE: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "lower": tf.strings.lower,
    "upper": tf.strings.upper,
    "upper_utf8": lambda s: tf.strings.upper(s, encoding="utf-8"),
    "strip": tf.strings.strip,
    "length": tf.strings.length,
    "regex_replace": lambda s: tf.strings.regex_replace(s, "[ab]+", "<\\0>"),
    "regex_replace_by_tensor": lambda s: tf.raw_ops.RegexReplace(input=s, pattern="a", rewrite="b"),
    "regex_full_match": lambda s: tf.strings.regex_full_match(s, "[a-z]*"),
    "base64": lambda s: tf.io.decode_base64(tf.io.encode_base64(s)),
    "encode_base64": lambda s: tf.io.encode_base64(s, pad=True),
    "hash": lambda s: tf.strings.to_hash_bucket_fast(s, 1000),
    "strong_hash": lambda s: tf.strings.to_hash_bucket_strong(s, 1000, [1, 2]),
    "transcode": lambda s: tf.strings.unicode_transcode(s, "UTF-8", "UTF-16-BE"),
    "number": lambda s: tf.strings.to_number(tf.strings.as_string(tf.strings.length(s))),
    "padded_raw": lambda s: tf.ensure_shape(tf.io.decode_raw(s, tf.uint8, fixed_length=4), [*s.shape, 4]),
    "substr": lambda s: tf.strings.substr(s, 0, 2),
    "join": lambda s: tf.strings.join([s, "-", s], separator="|"),
}


@pytest.mark.parametrize("op", ELEMENTWISE)
def test_op_takes_each_string_by_itself(op: str) -> None:
    def predict(scalar: tf.Tensor, vector: tf.Tensor) -> list[tf.Tensor]:
        return [ELEMENTWISE[op](scalar), ELEMENTWISE[op](vector)]

    check_loopless(predict, {"scalar": WORDS, "vector": PAIRS})


def test_substrings_at_each_rows_own_place() -> None:
    def predict(s: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        long = tf.strings.join([s, "....."])
        start = n % 3
        return {
            "each": tf.strings.substr(long, tf.fill([2], start), [1, 2]),
            "one": tf.strings.substr(long[0], start, 3),
        }

    check_loopless(predict, {"s": PAIRS, "n": COUNTS})


def test_join_of_a_rows_own_and_shared_strings_of_different_ranks() -> None:
    def predict(s: tf.Tensor) -> tf.Tensor:
        return tf.strings.join([s, s[0], tf.constant(["x", "y"]), "!"])

    check_loopless(predict, {"s": PAIRS})


def test_table_is_looked_up_once_for_all_rows() -> None:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(["aab", "7", ""]), tf.constant([3, 4, 5], tf.int64)), -1
    )

    def predict(s: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"found": table.lookup(s), "size": table.size() + tf.cast(tf.strings.length(s[0]), tf.int64)}

    check_loopless(predict, {"s": PAIRS})


def test_pattern_of_each_row_is_refused() -> None:
    def predict(s: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.RegexReplace(input=s, pattern=tf.strings.join(["a", "b"]) + s, rewrite="b")

    with pytest.raises(LoopedOpError, match=r"RegexReplace.*depends on the example"):
        vectorize(predict, inputs={"s": spec(dtype=tf.string)}, buckets=(2,))


def test_texts_are_joined_encoded_and_fingerprinted() -> None:
    def predict(s: tf.Tensor, n: tf.Tensor) -> list[tf.Tensor]:
        raw = tf.raw_ops
        codes = 97 + tf.math.floormod(n, 26)
        return [
            tf.strings.reduce_join(s, -1, separator="-"),
            tf.strings.reduce_join(s, [1, 0]),
            tf.strings.reduce_join(s, 0, keepdims=True),
            raw.UnicodeEncode(input_values=codes, input_splits=[0, 1, 4], output_encoding="UTF-8"),
            raw.Fingerprint(data=s, method="farmhash64"),
            raw.DecodeCompressed(bytes=s),
        ]

    words = np.array([[[f"{row}{i}{j}".encode() for j in range(2)] for i in range(3)] for row in range(8)], object)
    check_loopless(predict, {"s": words, "n": np.arange(32).reshape(8, 4).astype(np.int32)}, buckets=(1, 7))


def test_text_with_values_in_it_is_refused_by_name_and_not_written_for_all_rows_at_once() -> None:
    assert "one text for all rows" in refused_ops(lambda x: tf.strings.format("{}", x), x=spec(2))["StringFormat"]
