"""Elements picked by an index of each row, from a table of each row or one for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, check_refuses_alike, refused_ops
from tests.vectorizer.oracle import spec
from vectorizer import vectorize

RNG = np.random.default_rng(4)
X = RNG.normal(size=(8, 3, 4, 5)).astype(np.float32)
TABLE = tf.constant(RNG.normal(size=(3, 4, 5)), tf.float32)
#: Small enough for any dimension of the table; clipped in the function, as it is checked on numbers at random.
INDICES = RNG.integers(0, 3, size=(8, 3, 2)).astype(np.int32)
SHARED = tf.constant([[2, 0], [1, 1], [0, 2]])


def gathered(table: Any, indices: Any) -> dict[str, tf.Tensor]:
    indices = tf.clip_by_value(indices, 0, 2)
    return {
        "first": tf.gather(table, indices),
        "one": tf.gather(table, indices[0, 0]),
        "axis_1": tf.gather(table, indices, axis=1),
        "axis_last": tf.gather(table, indices, axis=-1),
        "batch": tf.gather(table, indices, batch_dims=1),
        "batch_and_axis": tf.gather(table, indices, axis=2, batch_dims=1),
        "batch_from_the_end": tf.gather(table, indices, axis=-1, batch_dims=-1),
        "nd_2": tf.gather_nd(table, indices),
        "nd_1": tf.gather_nd(table, indices[:, :1]),
        "nd_3": tf.gather_nd(table, tf.concat([indices, indices[:, :1]], 1)),
        "nd_0": tf.gather_nd(table, indices[:, :0]),
        "nd_batch": tf.gather_nd(table, indices, batch_dims=1),
        "nd_one": tf.gather_nd(table, indices[0]),
    }


def test_gather_from_a_table_of_each_row() -> None:
    check_loopless(gathered, {"table": X, "indices": INDICES})


def test_gather_from_one_table_for_all() -> None:
    check_loopless(lambda i: gathered(TABLE, i), {"i": INDICES.astype(np.int64)})


def test_gather_with_shared_indices() -> None:
    check_loopless(lambda x: gathered(x, SHARED), {"x": X.astype(np.float64)})


def test_strings_are_gathered_too() -> None:
    words = tf.constant([[b"a", b"b"], [b"c", b"d"], [b"e", b"f"]])

    def predict(i: tf.Tensor) -> list[tf.Tensor]:
        i = tf.clip_by_value(i, 0, 1)
        return [tf.gather(words, i[0, 0]), tf.gather_nd(words, i[0])]

    check_loopless(predict, {"i": INDICES}, buckets=(2,))


def test_index_out_of_range_fails_in_its_row_as_in_the_function() -> None:
    """Above all it must not reach the table of the next row."""
    for pick in (tf.gather, lambda x, i: tf.gather_nd(x, i[None]), lambda x, i: tf.gather(x, i, axis=1)):
        for table in (None, tf.ones([3, 3])):

            def predict(x: tf.Tensor, i: tf.Tensor, pick: Any = pick, table: Any = table) -> tf.Tensor:
                return pick(x if table is None else table, i)

            vectorized = vectorize(predict, inputs={"x": spec(3, 3), "i": spec(dtype=tf.int32)}, buckets=(4,))
            x = RNG.normal(size=(5, 3, 3)).astype(np.float32)
            i = np.array([0, 2, 3, -1, 7], np.int32)
            check_refuses_alike(predict, vectorized, {"x": x, "i": i}, first_bad=2)


def test_unravelled_index_has_its_coordinates_first() -> None:
    def predict(i: tf.Tensor) -> dict[str, tf.Tensor]:
        i = tf.clip_by_value(i, 0, 8)
        return {"some": tf.unravel_index(i[0], [3, 4]), "one": tf.unravel_index(i[0, 0], [3, 4])}

    check_loopless(predict, {"i": INDICES})


def test_permutation_is_inverted_and_what_is_none_fails_in_its_row() -> None:
    def invert(x: tf.Tensor) -> tf.Tensor:
        return tf.math.invert_permutation(tf.argsort(x))

    check_loopless(invert, {"x": X[:, 0, 0]})

    def predict(i: tf.Tensor) -> tf.Tensor:
        return tf.math.invert_permutation(tf.stack([1, i]))

    vectorized = vectorize(predict, inputs={"i": spec(dtype=tf.int32)}, buckets=(4,))
    check_refuses_alike(predict, vectorized, {"i": np.array([0, 0, 1, 2, 3, -1], np.int32)}, first_bad=2)


def test_one_hot_with_values_of_each_row() -> None:
    def predict(i: tf.Tensor, on: tf.Tensor, off: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "all": tf.one_hot(i, 4, on, off),
            "axis_0": tf.one_hot(i, 4, on, off, axis=0),
            "axis_1": tf.one_hot(i, 4, on, 0.0, axis=1),
            "shared_indices": tf.one_hot(SHARED, 4, 1.0, off),
            "shared_values": tf.one_hot(i, 4, 7, 9, axis=1),
            "scalar": tf.one_hot(i[0, 0], 4, on, off),
        }

    values = RNG.normal(size=(2, 8)).astype(np.float32)
    check_loopless(predict, {"i": INDICES, "on": values[0], "off": values[1]})


def test_one_hot_of_a_depth_of_each_row_is_refused_by_name() -> None:
    function = lambda i: tf.reduce_sum(tf.one_hot(1, i))  # noqa: E731
    assert "the depth" in refused_ops(function, i=spec(dtype=tf.int32))["OneHot"]


def test_roll() -> None:
    def predict(x: tf.Tensor, s: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "first": tf.roll(x, s[0], 0),
            "last": tf.roll(x, s[0], -1),
            "both": tf.roll(x, s, [0, 2]),
            "same_twice": tf.roll(x, s, [1, -2]),
            "shared_table": tf.roll(TABLE, s[0], 1),
            "shared_shift": tf.roll(x, 2, -1),
            "shared_shifts": tf.roll(x, [1, -2], [-1, 0]),
        }

    shifts = np.array([[1, 2], [0, 0], [-1, 7], [100, -100], [2**31 - 1, 5], [3, -5], [4, 4], [-3, 0]], np.int32)
    check_loopless(predict, {"x": X, "s": shifts})
