"""Histograms, ranks and sequences of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, check_refuses_alike
from tests.vectorizer.oracle import spec
from vectorizer import vectorize

RNG = np.random.default_rng(7)
X = RNG.normal(size=(8, 4, 6)).astype(np.float32)
COUNTS = RNG.integers(0, 6, size=(8, 4, 3)).astype(np.int32)
WEIGHTS = RNG.integers(0, 9, size=(8, 4, 3)).astype(np.float32)


def counted(values: Any, weights: Any) -> dict[str, tf.Tensor]:
    values = tf.abs(values)
    none = tf.zeros([0], tf.int64)
    raw = tf.raw_ops
    return {
        "vector": raw.DenseBincount(input=values[:, 0], size=5, weights=none),
        "matrix": raw.DenseBincount(input=values, size=4, weights=none),
        "binary": raw.DenseBincount(input=values, size=4, weights=none, binary_output=True),
        "one": raw.DenseBincount(input=values[0, 0], size=4, weights=none),
        "weighted": raw.DenseBincount(input=values[:, 1], size=5, weights=weights[:, 1]),
        "weighted_matrix": raw.DenseBincount(input=values, size=5, weights=weights),
        "old": raw.Bincount(arr=values, size=5, weights=tf.zeros([0])),
        "old_weighted": raw.Bincount(arr=values[0], size=5, weights=weights[0]),
    }


def test_histogram_of_each_row() -> None:
    check_loopless(counted, {"values": COUNTS, "weights": WEIGHTS})
    check_loopless(lambda v: counted(v, tf.constant(WEIGHTS[0])), {"v": COUNTS}, buckets=(1, 7))
    check_loopless(lambda w: counted(tf.constant(COUNTS[0]), w), {"w": WEIGHTS}, buckets=(1, 7))


def test_negative_count_fails_in_its_row_as_in_the_function() -> None:
    def predict(v: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.DenseBincount(input=v, size=4, weights=tf.zeros([0]))

    vectorized = vectorize(predict, inputs={"v": spec(2, dtype=tf.int32)}, buckets=(4,))
    check_refuses_alike(predict, vectorized, {"v": np.array([[1, 9], [0, 0], [1, -1], [-5, 2]], np.int32)}, first_bad=2)


def test_number_of_bins_that_depends_on_the_values_is_each_rows_own() -> None:
    def predict(v: tf.Tensor) -> list[tf.Tensor]:
        return [tf.math.bincount(v), tf.math.bincount(v, minlength=3, maxlength=4)]

    values = np.array([[0, 0, 0], [5, 1, 5], [2, 2, 1], [3, 0, 9]], np.int32)
    check_loopless(predict, {"v": values}, buckets=(4,))


def test_number_of_bins_that_is_bounded_from_both_sides_is_known() -> None:
    def predict(v: tf.Tensor, w: tf.Tensor) -> list[tf.Tensor]:
        v = tf.abs(v)
        return [
            tf.math.bincount(v, minlength=4, maxlength=4),
            tf.math.bincount(v[0], minlength=9, maxlength=7, weights=w[0]),
        ]

    check_loopless(predict, {"v": COUNTS, "w": WEIGHTS})


def test_targets_in_the_top_k() -> None:
    def predict(x: tf.Tensor, t: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "both": tf.math.in_top_k(t, x, 2),
            "shared_targets": tf.math.in_top_k([0, 5, 9, 1], x, 3),
            "shared_predictions": tf.math.in_top_k(t, tf.constant(X[0]), 1),
        }

    check_loopless(predict, {"x": X, "t": RNG.integers(0, 7, size=(8, 4)).astype(np.int32)})


def test_largest_and_nth_elements() -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        values, indices = tf.math.top_k(x, 3)
        return {
            "values": values,
            "indices": indices,
            "vector": tf.math.top_k(x[0], 2).values,
            "nth": tf.raw_ops.NthElement(input=x, n=2),
            "nth_of_vector": tf.raw_ops.NthElement(input=x[0], n=0, reverse=True),
        }

    check_loopless(predict, {"x": X})


def test_number_of_largest_elements_is_each_rows_own() -> None:
    def predict(x: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
        return tf.math.top_k(x[0], k).values

    check_loopless(predict, {"x": X[:4], "k": np.array([0, 6, 2, 3], np.int32)}, buckets=(4,))


@pytest.mark.parametrize(("seq_axis", "batch_axis", "n"), [(1, 0, 4), (0, 1, 6), (2, 0, 4), (0, 2, 3), (2, 1, 6)])
def test_sequences_are_reversed_up_to_their_own_length(seq_axis: int, batch_axis: int, n: int) -> None:
    longest = (4, 6, 3)[seq_axis]
    lengths = RNG.integers(0, longest + 1, size=(8, n)).astype(np.int32)
    values = RNG.normal(size=(8, 4, 6, 3)).astype(np.float32)

    def reverse(x: Any, lengths: Any) -> tf.Tensor:
        lengths = tf.clip_by_value(lengths, 0, longest)
        return tf.reverse_sequence(x, lengths, seq_axis=seq_axis, batch_axis=batch_axis)

    check_loopless(reverse, {"x": values, "lengths": lengths}, buckets=(1, 7))
    check_loopless(lambda x: reverse(x, lengths[0]), {"x": values}, buckets=(2,))
    check_loopless(lambda n: reverse(tf.constant(values[0]), n), {"n": lengths}, buckets=(2,))


def test_sequence_length_out_of_range_fails_in_its_row_as_in_the_function() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        return tf.reverse_sequence(x[tf.newaxis], n[tf.newaxis], seq_axis=1)

    vectorized = vectorize(predict, inputs={"x": spec(3), "n": spec(dtype=tf.int32)}, buckets=(4,))
    check_refuses_alike(predict, vectorized, {"x": X[:4, 0, :3], "n": np.array([0, 3, 4, -1], np.int32)}, first_bad=2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cumulative_logsumexp(dtype: Any) -> None:
    def predict(x: tf.Tensor) -> list[tf.Tensor]:
        return [
            tf.math.cumulative_logsumexp(x),
            tf.math.cumulative_logsumexp(x, axis=-1, reverse=True),
            tf.math.cumulative_logsumexp(x, axis=1, exclusive=True),
        ]

    check_loopless(predict, {"x": X.astype(dtype)})


def test_histogram_of_equal_bins() -> None:
    def counts(x: Any, ends: Any) -> list[tf.Tensor]:
        ends = tf.stack([ends[0], ends[0] + tf.abs(ends[1]) + 0.5])
        made = tf.raw_ops.HistogramFixedWidth
        return [
            made(values=x, value_range=ends, nbins=5),
            made(values=x[0], value_range=[-1.0, 1.0], nbins=3, dtype=tf.int64),
        ]

    ends = RNG.normal(size=(8, 2)).astype(np.float32)
    check_loopless(counts, {"x": X, "ends": ends}, buckets=(1, 7))
    check_loopless(lambda ends: counts(tf.constant(X[0]), ends), {"ends": ends}, buckets=(7,))


def test_histogram_whose_range_is_empty_fails_in_its_row() -> None:
    def predict(ends: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.HistogramFixedWidth(values=[1.0, 2.0], value_range=ends, nbins=4)

    vectorized = vectorize(predict, inputs={"ends": spec(2)}, buckets=(4,))
    check_refuses_alike(predict, vectorized, {"ends": np.float32([[0, 1], [-1, 5], [1, 1], [2, 1]])}, first_bad=2)
