"""Slices and sizes that depend on the example."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.vectorizer.converters.differing.test_selections import BUCKETS, CODES, NUMBERS
from tests.vectorizer.converters.loopless import check_loopless, check_refuses_alike
from vectorizer import vectorize

N = np.array([0, 5, 2, 3], np.int32)
X = np.nan_to_num(NUMBERS, posinf=9.0)


def test_slices_up_to_a_place_of_the_rows_own() -> None:
    def sliced(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        table = tf.stack([x, -x, 2 * x], 1)
        return {
            "head": x[:n],
            "tail": table[n:, 1:],
            "last": x[-n:],
            "between": x[n - 1 : 4],
            "every_other": x[:n:2],
            "backwards": x[:n][::-1],
            "columns": table[:, : n - 2],
            "whole": tf.slice(x, [5 - n], [n]),
            "first_two": x[:n][:2],
        }

    vectorized = check_loopless(sliced, {"x": X, "n": N}, buckets=BUCKETS)
    assert vectorized.is_for_xla


def test_an_index_beyond_a_rows_own_length_is_refused() -> None:
    def third(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        return x[:n][2] + tf.gather(x[:n], [1])

    n = np.array([5, 3, 4, 2, 0], np.int32)
    x = np.tile(X, (2, 1))[:5]
    vectorized = vectorize(third, inputs={"x": tf.TensorSpec([5]), "n": tf.TensorSpec([], tf.int32)}, buckets=(1, 3))
    check_refuses_alike(third, vectorized, {"x": x, "n": n}, first_bad=3)


def test_sizes_that_depend_on_the_example() -> None:
    def sized(x: tf.Tensor, n: tf.Tensor) -> dict[str, Any]:
        left, right = tf.split(x, [n, 5 - n])
        return {
            "left": left,
            "right": right,
            "range": tf.range(n),
            "repeated": tf.repeat(x, tf.range(5)),
            "tiled": tf.tile(x[:2], [n]),
            "filled": tf.fill([n, 2], x[0]),
            "padded": tf.pad(x[:n], [[1, 5 - n]], constant_values=-1.0),
            "fixed": tf.ensure_shape(tf.pad(x[:n], [[0, 5 - n]]), [5]),
        }

    vectorized = check_loopless(sized, {"x": X, "n": N}, buckets=BUCKETS)
    assert vectorized.outputs[-1].dims == (5,)
    assert not vectorized.is_for_xla


def test_values_of_differing_length_are_put_together() -> None:
    def together(x: tf.Tensor, codes: tf.Tensor) -> dict[str, Any]:
        kept, others = tf.boolean_mask(x, x > 0), tf.boolean_mask(2 * x, x > 0)
        table = tf.boolean_mask(tf.stack([x, -x], 1), codes > 1)
        return {
            "joined": tf.concat([[0.0], kept, x, others], 0),
            "pairs": tf.stack([kept, others], 1),
            "product": kept * others + 1,
            "differences": kept[:, tf.newaxis] - others[tf.newaxis, :],
            "mapped": tf.tensordot(table, tf.constant([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]), 1),
            "moments": tf.matmul(table, table, transpose_a=True),
            "flat": tf.reshape(table, [-1]),
            "column": tf.reshape(kept, [-1, 1]),
            "dense": tf.sparse.to_dense(tf.sparse.from_dense(x)),
            "sums": tf.math.unsorted_segment_sum(kept, tf.boolean_mask(codes, x > 0) % 3, 3),
            "slope": tf.gradients(tf.reduce_sum(kept**2), x)[0],
        }

    fixed = tf.function(together, autograph=False)
    check_loopless(fixed, {"x": X, "codes": CODES}, buckets=(4,))
