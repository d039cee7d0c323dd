"""The check of a derivative: what is wrong is caught, a kink is told apart from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import ParityError, gradient, vectorize
from vectorizer._pfor import same_op, stacked, wrap
from vectorizer.derivatives import Derivative


def doubled(pfor_input: Any) -> Any:
    """Convert an elementwise op wrongly."""
    inputs = [stacked(pfor_input.input(index), pfor_input) for index in range(pfor_input.num_inputs)]
    return [wrap(2.0 * output, stacked=True) for output in same_op(pfor_input, inputs)]


def test_a_wrong_converter_of_a_backward_op_is_caught() -> None:
    def loss(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.tanh(x))

    vectorize(loss, inputs={"x": spec(3)}, buckets=(2,), converters={"TanhGrad": doubled})
    with pytest.raises(ParityError, match=r"gradient of 'output'.*answers otherwise"):
        gradient(loss, inputs={"x": spec(3)}, buckets=(2,), converters={"TanhGrad": doubled})


def test_a_gradient_needs_no_second_derivative_of_an_op() -> None:
    """The gradient of a crop was refused, as the crop's own gradient has none."""
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 1)).astype(np.float32)

    def total(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.image.crop_and_resize(x[None], [[0.0, 0.2, 1.0, 0.7]], [0], (2, 2)) ** 2)

    slope = gradient(total, inputs={"x": spec(3, 4, 1)}, buckets=(2,))
    for row, got in zip(x, slope(x=x), strict=True):
        with tf.GradientTape() as tape:
            given = tf.constant(row)
            tape.watch(given)
            value = total(given)
        np.testing.assert_allclose(got, tape.gradient(value, given), rtol=1e-5, atol=1e-6)


def test_a_probe_at_a_kink_says_nothing_and_is_counted() -> None:
    def sign_of_rounding(x: tf.Tensor) -> tf.Tensor:
        # At [1, 1, 1] the two are equal but for rounding, and the larger one takes the gradient.
        return tf.maximum(tf.reduce_sum(x * x), 3.0 * x[0])

    def leans(pfor_input: Any) -> Any:
        left, right = (stacked(pfor_input.input(index), pfor_input) for index in range(2))
        return [wrap(tf.raw_ops.Greater(x=left, y=right), stacked=True)]

    model = vectorize(
        sign_of_rounding,
        inputs={"x": spec(3)},
        buckets=(2,),
        converters={"GreaterEqual": leans},
        derivatives=[Derivative(kind="gradient")],
    )
    assert 1 <= model.derivatives["gradient"].certificate.n_probes_refused <= 3
    x = np.array([[4.0, 0.0, 0.0], [0.1, 0.0, 0.2]], np.float32)
    np.testing.assert_allclose(model.derivatives["gradient"](x=x), [[8.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
