"""Ops of older graphs, and common ones in another spelling."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, refused_ops
from tests.vectorizer.oracle import spec

RNG = np.random.default_rng(12)
RAW = tf.raw_ops
X = RNG.normal(size=(8, 2, 4, 6, 3)).astype(np.float32)


def test_older_ops_on_images() -> None:
    kernel = tf.constant(RNG.normal(size=(2, 2, 3, 2)).astype(np.float32))

    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        cut = RAW.SpaceToBatch(input=x, paddings=[[0, 0], [1, 1]], block_size=2)
        return {
            "blocks": cut,
            "back": RAW.BatchToSpace(input=cut, crops=[[0, 0], [1, 1]], block_size=2),
            "joined": RAW.Concat(concat_dim=-1, values=[x, x[..., :1]]),
            "stacked_up": RAW.Concat(concat_dim=0, values=[x, tf.zeros([1, 4, 6, 3])]),
            "biased": RAW.BiasAddV1(value=x[0, 0], bias=x[0, 0, 0]),
            "reversed": RAW.Reverse(tensor=x, dims=[False, True, False, True]),
            "convolved": RAW.Conv(input=x, filter=kernel, strides=[1, 1, 1, 1], padding="SAME"),
        }

    check_loopless(predict, {"x": X}, rtol=1e-4)


def test_bias_of_each_row_alone() -> None:
    check_loopless(lambda b: RAW.BiasAddV1(value=tf.ones([2, 3]), bias=b), {"b": X[:, 0, 0, 0]}, buckets=(7,))


def test_products_of_mostly_zeros() -> None:
    def product(a: Any, b: Any) -> list[tf.Tensor]:
        half = tf.cast(b, tf.bfloat16)
        return [
            RAW.SparseMatMul(a=a, b=b, transpose_a=True, a_is_sparse=True),
            RAW.SparseMatMul(a=b, b=half, transpose_b=True),
        ]

    # On the way bfloat16 rounds.
    a, b = RNG.normal(size=(2, 8, 3, 3)).astype(np.float32)
    check_loopless(product, {"a": a, "b": b}, rtol=1e-2)
    check_loopless(lambda a: product(a, tf.constant(b[0])), {"a": a}, rtol=1e-2, buckets=(7,))


def test_what_counts_as_true() -> None:
    def predict(x: tf.Tensor, s: tf.Tensor) -> list[tf.Tensor]:
        given = [x, tf.cast(x, tf.int32), x > 0.5, s, tf.stack([x, x])]
        return [RAW.ToBool(input=one) for one in given]

    x = np.float32([0, 1, 0.5, -1, 0, np.nan, np.inf, -0.0])
    check_loopless(predict, {"x": x, "s": np.array([b"", b"a", b"0", b"", b"", b"b", b"", b""], object)})


def test_dimensions_in_the_order_of_another_format() -> None:
    def predict(n: tf.Tensor) -> list[tf.Tensor]:
        return [
            RAW.DataFormatVecPermute(x=n[0, :4]),
            RAW.DataFormatVecPermute(x=n[:, :2], src_format="NCHW", dst_format="NHWC"),
            RAW.DataFormatVecPermute(x=n[0, :2], src_format="NHWC", dst_format="NCHW"),
        ]

    check_loopless(predict, {"n": RNG.integers(0, 9, size=(8, 4, 4)).astype(np.int32)})


def test_clipped_to_bounds_of_each_row() -> None:
    def clipped(x: Any, low: Any, high: Any) -> list[tf.Tensor]:
        high = low + tf.abs(high)
        return [
            RAW.ClipByValue(t=x, clip_value_min=low, clip_value_max=high),
            RAW.ClipByValue(t=x[:, 0], clip_value_min=x[:, 1], clip_value_max=tf.abs(x[:, 1])),
        ]

    x = X[:, 0, :, :, 0].copy()
    x[3, 0, 0] = np.nan
    bounds = {"low": X[:, 1, 0, 0, 0], "high": X[:, 1, 0, 0, 1]}
    check_loopless(clipped, {"x": x, **bounds})
    check_loopless(lambda low, high: clipped(tf.constant(x[0]), low, high), bounds, buckets=(7,))


def test_axis_of_each_row_is_refused_by_name() -> None:
    def predict(x: tf.Tensor, axis: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.concat([x, x], axis))

    assert "ConcatV2" in refused_ops(predict, x=spec(2, 2), axis=spec(dtype=tf.int32))
