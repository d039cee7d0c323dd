"""Reductions over groups: each row has its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, check_refuses_alike, refused_ops
from tests.vectorizer.oracle import spec
from vectorizer import vectorize

RNG = np.random.default_rng(6)
X = RNG.integers(-4, 5, size=(8, 5, 2))
IDS = RNG.integers(-1, 3, size=(8, 5)).astype(np.int32)
SHARED_IDS = tf.constant([2, 0, -1, 2, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_sorted_segments_that_all_rows_share(dtype: Any) -> None:
    ids = tf.constant([0, 0, 2, 2, 3])

    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "sum": tf.math.segment_sum(x, ids),
            "mean": tf.math.segment_mean(x, ids),
            "prod": tf.math.segment_prod(x, ids),
            "max": tf.math.segment_max(x, ids),
            "min": tf.math.segment_min(x[:, 0], tf.cast(ids, tf.int64)),
        }

    check_loopless(predict, {"x": X.astype(dtype)})


def test_sorted_segments_of_each_row_are_refused_by_name() -> None:
    def predict(x: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.math.segment_sum(x, ids))

    message = refused_ops(predict, x=spec(5), ids=spec(5, dtype=tf.int32))["SegmentSum"]
    assert "unsorted_segment" in message


def unsorted(x: Any, ids: Any) -> dict[str, tf.Tensor]:
    ids = tf.clip_by_value(ids, -1, 2)
    flat = tf.tile(ids[:, tf.newaxis], [1, 2])
    return {
        "sum": tf.math.unsorted_segment_sum(x, ids, 4),
        "max": tf.math.unsorted_segment_max(x, ids, 4),
        "min": tf.math.unsorted_segment_min(x, flat, tf.constant(3, tf.int64)),
        "prod": tf.math.unsorted_segment_prod(x, tf.cast(ids, tf.int64), 3),
        "one": tf.math.unsorted_segment_sum(x[0], ids[0], 3),
    }


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_unsorted_segments(dtype: Any) -> None:
    check_loopless(unsorted, {"x": X.astype(dtype), "ids": IDS})
    check_loopless(lambda x: unsorted(x, SHARED_IDS), {"x": X.astype(dtype)}, buckets=(1, 7))
    check_loopless(lambda ids: unsorted(tf.constant(X[0], dtype), ids), {"ids": IDS}, buckets=(1, 7))


def test_means_of_unsorted_segments() -> None:
    def predict(x: tf.Tensor, ids: tf.Tensor) -> list[tf.Tensor]:
        ids = tf.clip_by_value(ids, -1, 2)
        return [tf.math.unsorted_segment_mean(x, ids, 3), tf.math.unsorted_segment_sqrt_n(x, ids, 3)]

    check_loopless(predict, {"x": X.astype(np.float32), "ids": IDS})


def test_segment_out_of_range_fails_in_its_row_and_adds_to_no_other() -> None:
    def predict(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(x, tf.stack([0, i]), 3)

    vectorized = vectorize(predict, inputs={"x": spec(2), "i": spec(dtype=tf.int32)}, buckets=(4,))
    values = {"x": RNG.normal(size=(5, 2)).astype(np.float32), "i": np.array([0, -1, 3, 4, 2**31 - 1], np.int32)}
    check_refuses_alike(predict, vectorized, values, first_bad=2)


def test_strings_are_joined_by_segment() -> None:
    def predict(s: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return tf.strings.unsorted_segment_join(s, tf.clip_by_value(ids, 0, 2), 4, ":")

    words = np.array([[bytes([97 + row, 97 + at]) for at in range(5)] for row in range(8)], object)
    check_loopless(predict, {"s": words, "ids": IDS})

    def bad(s: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return tf.strings.unsorted_segment_join(s, tf.stack([0, i]), 3)

    vectorized = vectorize(bad, inputs={"s": spec(2, dtype=tf.string), "i": spec(dtype=tf.int32)}, buckets=(4,))
    check_refuses_alike(bad, vectorized, {"s": words[:4, :2], "i": np.array([0, 2, 3, -1], np.int32)}, first_bad=2)


def sparse(x: Any, indices: Any, ids: Any) -> dict[str, tf.Tensor]:
    indices = tf.clip_by_value(indices, 0, 4)
    ids = tf.sort(tf.clip_by_value(ids, 0, 2))
    return {
        "sum": tf.sparse.segment_sum(x, indices, ids, num_segments=4),
        "mean": tf.sparse.segment_mean(x, indices, ids, num_segments=3),
        "sqrt_n": tf.sparse.segment_sqrt_n(x, tf.cast(indices, tf.int64), ids, num_segments=tf.constant(4, tf.int64)),
        "as_many_as_there_are": tf.sparse.segment_sum(x, indices, [0, 0, 1, 1, 3]),
    }


def test_sparse_segments() -> None:
    x, indices = X.astype(np.float32), RNG.integers(0, 5, size=(8, 5)).astype(np.int32)
    check_loopless(sparse, {"x": x, "indices": indices, "ids": IDS})
    shared = {"x": tf.constant(x[0]), "indices": tf.constant(indices[0]), "ids": tf.constant(IDS[0])}
    check_loopless(lambda x: sparse(x, shared["indices"], shared["ids"]), {"x": x}, buckets=(1, 7))
    check_loopless(lambda i: sparse(shared["x"], i, shared["ids"]), {"i": indices}, buckets=(1, 7))
    check_loopless(lambda i, ids: sparse(shared["x"], i, ids), {"i": indices, "ids": IDS}, buckets=(2,))


def test_sparse_index_out_of_range_fails_in_its_row_and_reads_no_other() -> None:
    def predict(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return tf.sparse.segment_sum(x, tf.stack([0, i]), [0, 1], num_segments=2)

    def segments(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return tf.sparse.segment_mean(x, [0, 1], tf.stack([0, i]), num_segments=3)

    for function in (predict, segments):
        vectorized = vectorize(function, inputs={"x": spec(3, 1), "i": spec(dtype=tf.int32)}, buckets=(4,))
        values = {"x": RNG.normal(size=(5, 3, 1)).astype(np.float32), "i": np.array([0, 2, 3, -1, 7], np.int32)}
        check_refuses_alike(function, vectorized, values, first_bad=2)


def test_pieces_are_stitched_by_shared_indices() -> None:
    def predict(x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
        piece = tf.constant([[1.0, 2.0]])
        return {
            "rows": tf.dynamic_stitch([[0, 3], [1], [2, 0]], [x[:2], piece, x[3:]]),
            "grids": tf.dynamic_stitch([[[0, 1], [3, 2]], 4], [tf.stack([x[:2], x[2:4]]), y]),
        }

    x = X.astype(np.float32)
    check_loopless(predict, {"x": x, "y": x[:, 0]})
