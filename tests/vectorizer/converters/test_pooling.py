"""Gradients of max pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless
from vectorizer import Derivative, Vectorized, vectorize

RNG = np.random.default_rng(0)
#: Whole numbers: most windows have several largest elements.
IMAGES = RNG.integers(0, 3, (3, 4, 6, 2)).astype(np.float32)


def op_types(vectorized: Vectorized) -> set[str]:
    return {op.type for graph in vectorized.graphs.values() for op in graph.graph.get_operations()}


@pytest.mark.parametrize(("window", "stride", "has_own_form"), [(2, 2, True), ([1, 3], [1, 3], True), (3, 2, False)])
def test_gradient_goes_to_the_first_largest_element(window: Any, stride: Any, *, has_own_form: bool) -> None:
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            pooled = tf.nn.max_pool2d(tf.stack([x, 2 - x]), window, stride, "SAME")
            loss = tf.reduce_sum(tf.range(float(pooled.shape.num_elements())) * tf.reshape(pooled, [-1]) ** 2)
        return tape.gradient(loss, x)

    vectorized = check_loopless(gradient, {"x": IMAGES}, buckets=(1, 3))
    assert ("MaxPoolGrad" not in op_types(vectorized)) == has_own_form


def test_jacobian_asks_once_which_elements_are_largest() -> None:
    vectorized = vectorize(
        lambda x: tf.nn.max_pool2d(x[None], 2, 2, "VALID"),
        inputs={"x": tf.TensorSpec([4, 6, 2], tf.float32)},
        buckets=(3,),
        derivatives=[Derivative(kind="jacobian", wrt="x")],
    ).derivatives["jacobian"]
    got = vectorized(x=IMAGES)
    for row, image in enumerate(IMAGES):
        x = tf.constant(image)
        with tf.GradientTape() as tape:
            tape.watch(x)
            pooled = tf.nn.max_pool2d(x[None], 2, 2, "VALID")
        np.testing.assert_array_equal(got[row], tape.jacobian(pooled, x))
    shapes = [
        op.outputs[0].shape.num_elements()
        for graph in vectorized.graphs.values()
        for op in graph.graph.get_operations()
        if op.type == "Less"
    ]
    assert shapes == [IMAGES.size]
