"""Derivatives of models that draw random numbers: they take the seed of each example, as the model does."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import Derivative, vectorize

SEEDS = np.array([7, -1, 7], np.int64)
ROWS = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 2.0]], np.float32)


def test_jacobian_is_that_of_the_numbers_which_each_examples_seed_draws() -> None:
    model = vectorize(
        lambda x: x**2 * tf.random.uniform([2]),
        inputs={"x": spec(2)},
        buckets=(1, 2),
        derivatives=[Derivative(kind="jacobian", wrt="x")],
    )
    drawn = np.asarray(model(x=ROWS, seed=SEEDS)) / ROWS**2
    assert not np.allclose(drawn[0], drawn[1])
    np.testing.assert_allclose(drawn[0], drawn[2], rtol=1e-6)
    derivative = model.derivatives["jacobian"]
    got = derivative(x=ROWS, seed=SEEDS)
    np.testing.assert_allclose(got, (2.0 * ROWS * drawn)[:, :, None] * np.eye(2), rtol=1e-5, atol=1e-6)
    assert derivative.certificate.loops_batched == 0
