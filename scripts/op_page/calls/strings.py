"""Strings, files in memory, records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.op_page.call import Call, Each, call, ints, reals

__all__ = ["CALLS", "VARIANTS"]


def _text(*values: Any) -> Each:
    return Each(np.array(values, object), tf.string)


def _param(*values: Any) -> np.ndarray:
    return np.array(values, object)


_ONE = Each(np.array(b"one text", object), tf.string)
_SOME = _text(b"ab", b"cd ef")
_SPACE = np.array(b" ", object)
_NO = np.zeros([0], object)
_SPLITS = np.int64([0, 2, 3])


def _same(names: str, make: Callable[[str], Call]) -> dict[str, Callable[[str], Call]]:
    return dict.fromkeys(names.split(), make)


_DEFAULT = np.zeros([2], np.float32)
_KEYS = (_NO, _NO, _param(b"f"), _NO, [_DEFAULT])
_FEATURES: dict[str, Any] = {
    "num_sparse": 0,
    "sparse_types": [],
    "ragged_value_types": [],
    "ragged_split_types": [],
    "dense_shapes": [[2]],
}

CALLS: dict[str, Callable[[str], Call]] = {
    **_same("StringToHashBucket StringToHashBucketFast", call(_SOME, num_buckets=7)),
    **_same("UnicodeDecode UnicodeDecodeWithOffsets", call(_SOME, input_encoding="UTF-8")),
    "DecodeCSV": call(_text(b"1,2", b"3,4"), [np.float32([0]), np.float32([0])]),
    "DecodeCompressed": call(_SOME, compression_type="ZLIB"),
    "DecodeJSONExample": call(_SOME),
    "DecodePaddedRaw": call(_text(b"abcd", b"ef"), 4, out_type=tf.uint8),
    "DecodeProtoV2": call(
        _SOME, message_type="tensorflow.TensorShapeProto", field_names=["unknown_rank"], output_types=[tf.bool]
    ),
    "DecodeRaw": call(_text(b"abcd", b"efgh"), out_type=tf.uint8),
    "DecodeWav": call(_ONE),
    "EditDistance": call(
        np.int64([[0, 0]]),
        ints(1, dtype=np.int64),
        np.int64([1, 2]),
        np.int64([[0, 0]]),
        ints(1, dtype=np.int64),
        np.int64([1, 2]),
    ),
    "EncodeProto": call(
        np.ones([2, 1], np.int32),
        [Each(np.array([[True], [False]]))],
        message_type="tensorflow.TensorShapeProto",
        field_names=["unknown_rank"],
    ),
    "EncodeWav": call(reals(4, 1), 16000),
    "Fingerprint": call(_SOME, np.array(b"farmhash64", object)),
    "ParseExample": call(_SOME, _NO, [], [np.array(b"f", object)], [_DEFAULT], sparse_types=[], dense_shapes=[[2]]),
    "ParseExampleV2": call(_ONE, *_KEYS, **_FEATURES),
    "ParseSequenceExample": call(
        _SOME,
        _NO,
        [_DEFAULT],
        feature_list_dense_missing_assumed_empty=[],
        context_sparse_keys=[],
        context_dense_keys=["f"],
        feature_list_sparse_keys=[],
        feature_list_dense_keys=[],
        Ncontext_dense=1,
        context_dense_shapes=[[2]],
    ),
    "ParseSequenceExampleV2": call(
        _SOME,
        _NO,
        _NO,
        _param(b"f"),
        *[_NO] * 4,
        np.zeros([0], bool),
        [_DEFAULT],
        context_dense_shapes=[[2]],
    ),
    "ParseSingleSequenceExample": call(
        _ONE, _NO, [], [np.array(b"f", object)], [], [], [_DEFAULT], np.array(b"", object), context_dense_shapes=[[2]]
    ),
    "ParseSingleExample": call(
        _ONE,
        [_DEFAULT],
        num_sparse=0,
        sparse_keys=[],
        dense_keys=["f"],
        sparse_types=[],
        dense_shapes=[[2]],
    ),
    "ParseTensor": call(_ONE, out_type=tf.float32),
    "ReduceJoin": call(_SOME, 0),
    "RegexFullMatch": call(_SOME, np.array(b"a.*", object)),
    "RegexReplace": call(_SOME, np.array(b"a", object), np.array(b"b", object)),
    "StaticRegexFullMatch": call(_SOME, pattern="a.*"),
    "StaticRegexReplace": call(_SOME, pattern="a", rewrite="b"),
    "StringFormat": call([reals(2)], template="%s", placeholder="%s", summarize=3),
    "StringJoin": call([_SOME, _SOME]),
    "StringNGrams": call(
        _text(b"a", b"b", b"c"),
        _SPLITS,
        separator=" ",
        ngram_widths=[2],
        left_pad="",
        right_pad="",
        pad_width=0,
        preserve_short_sequences=False,
    ),
    "StringSplit": call(_SOME, _SPACE),
    "StringSplitV2": call(_SOME, _SPACE),
    "StringToHashBucketStrong": call(_SOME, num_buckets=7, key=[1, 2]),
    "Substr": call(_SOME, 0, 1),
    "UnicodeEncode": call(ints(3), _SPLITS, output_encoding="UTF-8"),
    "UnicodeTranscode": call(_SOME, input_encoding="UTF-8", output_encoding="UTF-16-BE"),
}

VARIANTS: dict[str, dict[str, Callable[[str], Call]]] = {
    "ParseExampleV2": {"a vector of records": call(_SOME, *_KEYS, **_FEATURES)},
}
