"""Padding by another number in each row."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, check_refuses_alike
from tests.vectorizer.oracle import spec
from vectorizer import vectorize

RNG = np.random.default_rng(10)
X = RNG.normal(size=(8, 3, 4)).astype(np.float32)
PLACES = np.array([0, 4, 1, 3, 2, 0, 4, 1], np.int32)


def test_place_of_each_row_in_a_frame() -> None:
    def predict(x: tf.Tensor, i: tf.Tensor, v: tf.Tensor) -> dict[str, tf.Tensor]:
        i = tf.clip_by_value(i, 0, 4)
        j = i // 2
        return {
            "rows": tf.pad(x, [[i, 4 - i], [0, 0]]),
            "both": tf.pad(x, [[4 - i, i], [j + 1, 3 - j]], constant_values=7.0),
            "own_value": tf.pad(x, [[1, 2], [i, 5 - i]], constant_values=v),
            "shared": tf.pad(tf.constant([1, 2]), [[i, 4 - i]]),
        }

    check_loopless(predict, {"x": X, "i": PLACES, "v": X[:, 0, 0]})


def test_gradient_of_a_slice_goes_back_to_where_it_was() -> None:
    def predict(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        i = tf.clip_by_value(i, 0, 1)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.slice(x, [i, 0], [2, 3]) ** 2) + tf.reduce_sum(tf.slice(x, [0, i], [-1, 2]) ** 3)
        return tape.gradient(loss, x)

    check_loopless(predict, {"x": X, "i": PLACES})


def test_negative_padding_fails_in_its_row_as_in_the_function() -> None:
    def predict(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return tf.pad(x, [[i, 3 - i]])

    vectorized = vectorize(predict, inputs={"x": spec(2), "i": spec(dtype=tf.int32)}, buckets=(4,))
    check_refuses_alike(predict, vectorized, {"x": X[:4, 0, :2], "i": np.array([0, 3, 4, -1], np.int32)}, first_bad=2)


def test_padding_whose_sum_differs_gives_each_row_its_own_length() -> None:
    def predict(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        return tf.pad(x, [[tf.abs(i), 3]])

    check_loopless(predict, {"x": X[:4, 0, :2], "i": np.array([0, 3, -4, 1], np.int32)}, buckets=(4,))


def test_row_that_takes_another_branch_does_not_pad_by_a_negative_number() -> None:
    def predict(x: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
        if i >= 0 and i <= 4:
            result = tf.ensure_shape(tf.pad(x, [[i, 4 - i]]), [8])
        else:
            result = tf.zeros([8])
        return result

    check_loopless(predict, {"x": X[:, 0], "i": PLACES - 2}, buckets=(2, 8))


def test_what_is_padded_with_is_not_lost() -> None:
    def predict(x: tf.Tensor, value: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "shared": tf.pad(x, [[1, 0]], constant_values=3.0),
            "own": tf.pad(x, [[0, 2]], constant_values=value),
        }

    check_loopless(predict, {"x": np.eye(3, dtype=np.float32), "value": np.float32([1.0, -2.0, 0.5])}, buckets=(1, 3))
