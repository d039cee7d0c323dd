"""Derivatives of variable-length examples: cut back to the true lengths, on every dimension that follows one."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import Derivative, Length, vectorize

RNG = np.random.default_rng(0)


def tilt(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
    inside = tf.cast(tf.range(tf.shape(x)[0]) < n, tf.float32)
    return {"y": tf.cumsum(x**2) * inside, "s": tf.reduce_sum(inside * x**3)}


def test_padding_never_shows_in_a_derivative() -> None:
    model = vectorize(
        tilt,
        inputs={"x": spec(None), "n": spec(dtype=tf.int32)},
        lengths={"x": Length(max=5, buckets=(2, 5), length_input="n")},
        buckets=(2,),
        derivatives=[
            Derivative(kind="gradient"),
            Derivative(kind="hessian"),
            Derivative(kind="jacobian", output="y"),
            Derivative(kind="vjp", output="y"),
        ],
    )
    rows = [RNG.normal(size=size).astype(np.float32) for size in (3, 0, 2, 5, 1)]
    weights = [RNG.normal(size=row.size).astype(np.float32) for row in rows]
    gradients = model.derivatives["gradient"](x=rows)
    hessians = model.derivatives["hessian"](x=rows)
    jacobians = model.derivatives["jacobian"](x=rows)
    products = model.derivatives["vjp"](x=rows, cotangent=weights)
    for index, row in enumerate(rows):
        np.testing.assert_allclose(gradients[index], 3.0 * row**2, rtol=1e-5)
        np.testing.assert_allclose(hessians[index], np.diag(6.0 * row), rtol=1e-5)
        want = np.tril(np.tile(2.0 * row, (row.size, 1)))
        np.testing.assert_allclose(jacobians[index], want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(products[index], weights[index] @ want, rtol=1e-4, atol=1e-5)
