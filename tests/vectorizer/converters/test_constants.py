"""What is known of integers before a graph runs."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from vectorizer.converters.bounds import remember_bound, upper_bound
from vectorizer.converters.constants import folded_constant


def test_arithmetic_of_shapes_is_a_constant() -> None:
    with tf.Graph().as_default():
        x = tf.compat.v1.placeholder(tf.float32, [3, 4])
        shape = tf.constant([3, 4]) + 0 * tf.shape(x)
        half = tf.stack([shape[0] * 2, tf.maximum(shape[-1] // 3, 5) - 1])
        np.testing.assert_array_equal(folded_constant(half), [6, 4])
        np.testing.assert_array_equal(folded_constant(tf.reduce_prod(shape[0:], keepdims=True)), [12])
        np.testing.assert_array_equal(folded_constant(tf.gather(shape, [1, 1])), [4, 4])


def test_what_depends_on_a_value_is_no_constant() -> None:
    with tf.Graph().as_default():
        n = tf.compat.v1.placeholder(tf.int32, [])
        assert folded_constant(tf.constant(3) + n) is None
        assert folded_constant(tf.constant([1, 2])[n]) is None
        assert folded_constant(tf.constant(7) // tf.constant(0)) is None, "the graph fails, and says so"


def test_a_minimum_bounds_what_is_computed_from_it() -> None:
    with tf.Graph().as_default():
        n = tf.compat.v1.placeholder(tf.int32, [4])
        assert upper_bound(n) is None
        assert upper_bound(tf.minimum(n, 6)) == 6
        assert upper_bound(tf.reshape(tf.minimum(n, [6, 7, 8, 9]), [2, 2]) + 1) == 10
        assert upper_bound(tf.maximum(tf.minimum(n, 6), n)) is None
        assert upper_bound(tf.clip_by_value(n, 0, 5)) == 5
        assert upper_bound(tf.cast(tf.cast(tf.minimum(n, 6), tf.float32), tf.int32)) is None


def test_bound_of_what_a_loop_leaves_is_known_where_it_is_captured() -> None:
    seen = []

    @tf.function
    def outer(n: tf.Tensor) -> tf.Tensor:
        steps = n + 0
        remember_bound(steps, 9)

        @tf.function
        def inner() -> tf.Tensor:
            seen.append(upper_bound(steps * 1 + 0))
            captured = tf.identity(steps)
            seen.append(upper_bound(captured))
            return captured

        return inner()

    outer.get_concrete_function(tf.TensorSpec([], tf.int32))
    assert seen == [None, 9], "a product may be of two negative numbers"
