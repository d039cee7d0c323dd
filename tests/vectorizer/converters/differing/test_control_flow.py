"""Values of differing length in branches and loops."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.differing.test_selections import BUCKETS
from tests.vectorizer.converters.differing.test_slices import N, X
from tests.vectorizer.converters.loopless import check_loopless
from vectorizer import ConversionError, vectorize


def test_branches_give_values_of_different_lengths() -> None:
    def chosen(x: tf.Tensor, n: tf.Tensor) -> tuple[tf.Tensor, ...]:
        kept = tf.boolean_mask(x, x > 0)
        if tf.size(kept) > 0:
            most = tf.reduce_max(kept)
        else:
            most = -1.0
        by_row = tf.cond(x[0] > 1, lambda: kept, lambda: x[:2])
        by_number = tf.switch_case(n, [lambda: kept, lambda: tf.unique(x)[0], lambda: x])
        return most, by_row, by_number

    check_loopless(chosen, {"x": X, "n": N}, buckets=BUCKETS)


def test_a_loop_reads_as_many_elements_as_its_row_has() -> None:
    def folded(x: tf.Tensor) -> tf.Tensor:
        kept = tf.boolean_mask(x, x > 0)
        total = 0.0
        for index in tf.range(tf.size(kept)):
            total = total / 2 + kept[index]
        return total

    vectorized = vectorize(folded, inputs={"x": tf.TensorSpec([5])}, buckets=(4,))
    loop = [folded_in_python(row) for row in X]
    np.testing.assert_allclose(vectorized(x=X), loop, rtol=1e-6)
    assert vectorized.certificate.looped == ()


def folded_in_python(row: np.ndarray) -> float:
    total = 0.0
    for value in row[row > 0]:
        total = total / 2 + float(value)
    return total


def test_a_loop_variable_of_differing_length_is_refused() -> None:
    def shrinking(x: tf.Tensor) -> tf.Tensor:
        kept = tf.boolean_mask(x, x > 0)
        return tf.while_loop(
            lambda step, _: step < 3,
            lambda step, kept: (step + 1, tf.boolean_mask(kept, kept > 1)),
            [0, kept],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
        )[1]

    with pytest.raises(ConversionError, match=r"not be a loop variable.*number of valid elements"):
        vectorize(shrinking, inputs={"x": tf.TensorSpec([5])}, buckets=(2,))
