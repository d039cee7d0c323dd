"""Slices that begin at another place in each row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, check_refuses_alike, refused_ops
from tests.vectorizer.oracle import spec
from vectorizer import ParityError, vectorize

RNG = np.random.default_rng(3)
X = RNG.normal(size=(8, 9, 6, 5)).astype(np.float32)
TABLE = tf.constant(RNG.normal(size=(9, 6, 5)), tf.float32)
PLACES = np.array([0, 5, -9, 3, 8, -1, 2, 7], np.int32)
OTHERS = np.array([1, 0, 3, 2, -5, 4, -1, 3], np.int32)


def at(table: Any, i: tf.Tensor, j: tf.Tensor) -> dict[str, tf.Tensor]:
    """Every form of one index."""
    return {
        "first": table[i],
        "middle": table[:, i // 2],
        "last": table[..., j],
        "two": table[i, ..., j],
        "all": table[i, i // 2, j],
        "with_range": table[i, 1:4, ::2],
        "constant_too": table[2, i // 2, -1],
        "new_axes": table[tf.newaxis, i, :, tf.newaxis, j],
        "reversed": table[::-1, i // 2, 4:0:-2],
    }


def test_index_of_each_row() -> None:
    check_loopless(at, {"table": X, "i": PLACES, "j": OTHERS})
    check_loopless(lambda i, j: at(TABLE, i, j), {"i": PLACES.astype(np.int64), "j": OTHERS.astype(np.int64)})


def windows(table: Any, i: tf.Tensor, j: tf.Tensor) -> dict[str, tf.Tensor]:
    """Every form of a slice with a constant size; the places are clipped, so that it is never cut."""
    i = tf.clip_by_value(i, 0, 6)
    j = tf.clip_by_value(j, 0, 2)
    return {
        "first": table[i : i + 3],
        "minus": table[i : 2 + i - 1],
        "last": table[..., j : j + 2],
        "two": table[i : i + 3, ..., j + 1 : j + 3],
        "row_of_it": table[i, j : j + 2],
        "strided": table[i : i + 3 : 2, j],
        "backward": table[i + 2 : i : -1],
        "doubled": table[2 * j : 2 * j + 2],
        "from_the_end": table[i - 9 : i - 7],
        "new_axis": table[tf.newaxis, i : i + 1, ..., 1:3, tf.newaxis],
        "vector": tf.strided_slice(table, tf.stack([i, j]), tf.stack([i, j]) + tf.constant([2, 2])),
    }


def test_window_of_each_row() -> None:
    check_loopless(windows, {"table": X, "i": PLACES, "j": OTHERS})
    check_loopless(lambda i, j: windows(TABLE, i, j), {"i": PLACES, "j": OTHERS})


def sliced(table: Any, i: tf.Tensor, j: tf.Tensor) -> dict[str, tf.Tensor]:
    i, j = tf.clip_by_value(i, 0, 6), tf.clip_by_value(j, 0, 2)
    return {
        "first": tf.slice(table, [i, 0, 0], [3, -1, 2]),
        "last": tf.slice(table, [1, 2, j], [2, -1, 3]),
        "all": tf.slice(table, [i, j + 1, j], [2, 3, 1]),
        "vector": tf.slice(table, tf.stack([i, j, j]), [1, 2, 3]),
    }


def test_tf_slice_of_each_row() -> None:
    check_loopless(sliced, {"table": X, "i": PLACES, "j": OTHERS})
    check_loopless(lambda i, j: sliced(TABLE, i, j), {"i": PLACES, "j": OTHERS})


@pytest.mark.parametrize("dtype", [tf.float64, tf.int8, tf.bool, tf.complex64, tf.string])
def test_any_dtype(dtype: tf.DType) -> None:
    letters = tf.constant([[b"a", b"b", b"c"], [b"d", b"e", b"f"], [b"g", b"h", b"i"]])
    table = letters if dtype == tf.string else tf.cast(tf.reshape(tf.range(9), [3, 3]) % 4, dtype)
    i = np.array([0, 2, 1, -1, -3, 1, 0, 2], np.int32)
    check_loopless(lambda i: {"one": table[i], "two": table[tf.abs(i) // 2 : tf.abs(i) // 2 + 2, 1]}, {"i": i})


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x[1, i],
        lambda x, i: tf.slice(x, [0, i], [2, 2]),
        lambda x, i: tf.constant([[1.0, 2.0, 3.0, 4.0]])[0, i],
        lambda x, i: tf.ensure_shape(x[:, i : i + 3], [2, 3]),
    ],
)
def test_place_out_of_range_fails_in_its_row_as_in_the_function(function: Callable[..., Any]) -> None:
    x = RNG.normal(size=(6, 2, 4)).astype(np.float32)
    i = np.array([0, 1, 5, -7, 2**31 - 1, -(2**31)], np.int32)
    vectorized = vectorize(function, inputs={"x": spec(2, 4), "i": spec(dtype=tf.int32)}, buckets=(2, 4))
    check_refuses_alike(function, vectorized, {"x": x, "i": i}, first_bad=2)


def test_slice_that_is_cut_short_is_never_answered_with_a_longer_one() -> None:
    """TensorFlow answers x[8:11] of 9 elements with one; a batch has no room for rows of different sizes."""
    with pytest.raises(ParityError, match="fails on examples that the function answers"):
        vectorize(
            lambda x, i: tf.reduce_sum(x[i : i + 3]), inputs={"x": spec(9), "i": spec(dtype=tf.int32)}, buckets=(2,)
        )


def test_slice_whose_size_differs_is_as_long_as_the_row_says() -> None:
    def predict(x: tf.Tensor, i: tf.Tensor) -> list[tf.Tensor]:
        return [x[i:], x[:i], x[i : 2 * i], x[i : i + i], tf.slice(x, [i], [-1]), tf.slice(x, [0], [i])]

    check_loopless(predict, {"x": X[:4, :, 0, 0], "i": np.array([9, 0, 4, 2], np.int32)}, buckets=(4,))


def test_stride_that_differs_is_refused_by_name() -> None:
    message = refused_ops(lambda x, i: x[:: tf.maximum(i, 1)], x=spec(9), i=spec(dtype=tf.int32))["StridedSlice"]
    assert "stride" in message


def test_row_that_left_a_loop_does_not_read_beyond_the_end() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        total, i = 0.0, 0
        while i < tf.minimum(n, 9):
            total += x[i]
            i += 1
        return total

    check_loopless(
        predict, {"x": X[:, :, 0, 0], "n": np.array([9, 0, 1, 5, 9, 2, 7, 3], np.int32)}, rtol=1e-4, buckets=(2, 8)
    )


def test_gradient_goes_back_to_where_the_slice_was() -> None:
    def predict(table: tf.Tensor, i: tf.Tensor, j: tf.Tensor) -> list[tf.Tensor]:
        i, j = tf.clip_by_value(i, -9, 6), tf.clip_by_value(j, 0, 2)
        k = tf.abs(i) // 2
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(table)
            one = tf.reduce_sum(table[i] ** 2)
            window = tf.reduce_sum(table[k : k + 2, 1:3, tf.newaxis, j] ** 2)
            backward = tf.reduce_sum(table[1, j + 2 : j : -1, 0] ** 2)
        return [tape.gradient(one, table), tape.gradient(window, table), tape.gradient(backward, table)]

    check_loopless(predict, {"table": X, "i": PLACES, "j": OTHERS})


def updated(x: Any, v: Any, i: Any) -> list[tf.Tensor]:
    i = tf.math.floormod(i, 2)
    update = tf.raw_ops.TensorStridedSliceUpdate
    return [
        update(input=x, begin=[1], end=[3], strides=[1], value=v[:2]),
        update(input=x, begin=[0, 2], end=[0, 0], strides=[2, -1], value=v[:2, :2], begin_mask=1, end_mask=1),
        update(input=x, begin=[2], end=[3], strides=[1], value=v[0], shrink_axis_mask=1),
        update(input=x, begin=[0, 1], end=[0, 2], strides=[1, 1], value=v[:, 0], ellipsis_mask=1, shrink_axis_mask=2),
        update(input=x, begin=i[None], end=i[None] + 2, strides=[1], value=v[:2]),
        update(input=x, begin=i[None], end=i[None] + 1, strides=[1], value=v[0], shrink_axis_mask=1),
    ]


def test_slices_are_replaced_at_shared_places_and_at_places_of_each_row() -> None:
    x, v = RNG.normal(size=(2, 8, 4, 3)).astype(np.float32)
    i = np.arange(8, dtype=np.int32)
    check_loopless(updated, {"x": x, "v": v, "i": i}, buckets=(1, 7))
    check_loopless(lambda i: updated(tf.constant(x[0]), tf.constant(v[0]), i), {"i": i}, buckets=(7,))
    check_loopless(lambda v: updated(tf.constant(x[0]), v, 1), {"v": v}, buckets=(7,))
