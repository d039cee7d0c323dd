"""Sparse tensors in parts, with places of each row's own and shared ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, check_refuses_alike, refused_ops
from tests.vectorizer.oracle import spec
from vectorizer import vectorize

RNG = np.random.default_rng(9)
RAW = tf.raw_ops
#: Four places of a 3 x 5 matrix in order, others in each row.
PLACES = np.stack(
    [[divmod(int(place), 5) for place in np.sort(RNG.choice(15, 4, replace=False))] for _ in range(8)]
).astype(np.int64)
VALUES = RNG.normal(size=(8, 4)).astype(np.float32)
SHAPE = tf.constant([3, 5], tf.int64)


def places_of(p: tf.Tensor) -> tf.Tensor:
    """Whatever numbers a probe gives: in order, and within the matrix."""
    flat = tf.sort(tf.math.floormod(p[:, 0] * 5 + p[:, 1], 3)) + 4 * tf.range(4, dtype=tf.int64)
    return tf.stack([tf.math.floordiv(flat, 5), tf.math.floormod(flat, 5)], -1)


def combined(p: Any, v: Any, d: Any) -> dict[str, tf.Tensor]:
    p = places_of(p)
    parts = {"sp_indices": p, "sp_values": v, "sp_shape": SHAPE}
    old = {"input_indices": p, "input_values": v, "input_shape": SHAPE}
    reordered, reordered_values = RAW.SparseReorder(**{**old, "input_indices": p[::-1], "input_values": v[::-1]})
    reshaped = RAW.SparseReshape(input_indices=p, input_shape=SHAPE, new_shape=tf.constant([5, -1], tf.int64))
    return {
        "times": RAW.SparseDenseCwiseMul(**parts, dense=d),
        "over": RAW.SparseDenseCwiseDiv(**parts, dense=tf.abs(d[:1]) + 1.0),
        "plus": RAW.SparseDenseCwiseAdd(**parts, dense=d[0]),
        "added": RAW.SparseTensorDenseAdd(a_indices=p, a_values=v, a_shape=SHAPE, b=d),
        "softmax": RAW.SparseSoftmax(**parts),
        "sums": RAW.SparseReduceSum(**old, reduction_axes=[1]),
        "kept": RAW.SparseReduceSum(**old, reduction_axes=[-2], keep_dims=True),
        "largest": RAW.SparseReduceMax(**old, reduction_axes=[0]),
        "reordered": reordered,
        "reordered_values": reordered_values,
        "reshaped": reshaped.output_indices,
        "its_shape": reshaped.output_shape,
        "dense": RAW.SparseToDense(sparse_indices=p, output_shape=SHAPE, sparse_values=v, default_value=7.0),
        "marked": RAW.SparseToDense(
            sparse_indices=p[:, 0] * 5 + p[:, 1], output_shape=[15], sparse_values=1, default_value=0
        ),
        "one": RAW.SparseToDense(sparse_indices=p[0, 1], output_shape=[5], sparse_values=v[0], default_value=0.0),
    }


def test_places_and_values_of_each_row() -> None:
    dense = RNG.normal(size=(8, 3, 5)).astype(np.float32)
    check_loopless(combined, {"p": PLACES, "v": VALUES, "d": dense})
    shared = tf.constant(dense[0])
    check_loopless(lambda v: combined(tf.constant(PLACES[0]), v, shared), {"v": VALUES}, buckets=(1, 7))
    check_loopless(lambda p: combined(p, tf.constant(VALUES[0]), shared), {"p": PLACES}, buckets=(7,))


def product(p: Any, v: Any, b: Any) -> list[tf.Tensor]:
    p = places_of(p)
    adjoint = tf.transpose(b[:3])
    times = RAW.SparseTensorDenseMatMul
    return [
        times(a_indices=p, a_values=v, a_shape=SHAPE, b=b),
        times(a_indices=p, a_values=v, a_shape=SHAPE, b=b[:3], adjoint_a=True),
        times(a_indices=p, a_values=v, a_shape=SHAPE, b=adjoint, adjoint_a=True, adjoint_b=True),
    ]


def test_product_with_a_dense_matrix() -> None:
    dense = RNG.normal(size=(8, 5, 2)).astype(np.float32)
    check_loopless(product, {"p": PLACES, "v": VALUES, "b": dense})
    shared = tf.constant(PLACES[0])
    check_loopless(lambda b: product(shared, tf.constant(VALUES[0]), b), {"b": dense}, buckets=(1, 7))
    check_loopless(lambda v: product(shared, v, tf.constant(dense[0])), {"v": VALUES}, buckets=(7,))


def test_place_out_of_range_fails_in_its_row_and_reaches_into_no_other() -> None:
    def predict(p: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
        return RAW.SparseTensorDenseMatMul(a_indices=p, a_values=v, a_shape=[3, 5], b=tf.ones([5, 2]))

    places = np.zeros([4, 1, 2], np.int64)
    places[2:, 0] = [[3, 0], [-1, 0]]
    vectorized = vectorize(predict, inputs={"p": spec(1, 2, dtype=tf.int64), "v": spec(1)}, buckets=(4,))
    check_refuses_alike(predict, vectorized, {"p": places, "v": np.ones([4, 1], np.float32)}, first_bad=2)


@pytest.mark.parametrize("op", ["SparseToDense"])
def test_shape_of_each_row_is_refused_by_name(op: str) -> None:
    def predict(p: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        made = RAW.SparseToDense(sparse_indices=p, output_shape=n[None], sparse_values=1.0, default_value=0.0)
        return tf.reduce_sum(made)

    assert op in refused_ops(predict, p=spec(2, dtype=tf.int32), n=spec(dtype=tf.int32))
