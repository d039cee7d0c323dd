"""Jacobians of more elements than are computed side by side: the backward pass is in a loop over chunks of them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import Derivative, Output, jacobian, trace_example
from vectorizer.derivatives.body import pullback_body
from vectorizer.derivatives.choice import choose
from vectorizer.derivatives.memory import pullback_bytes


def gated(x: tf.Tensor) -> tf.Tensor:
    """Use ops whose gradients take axes, places and sizes from the forward pass."""
    news, gate = tf.split(x, 2)
    return tf.pad(tf.roll(news * tf.sigmoid(gate), 1, axis=0), [[1, 0], [0, 0]], "REFLECT")


def test_ops_that_take_constants_from_the_forward_pass_are_not_refused_in_chunks() -> None:
    """Seen as: LoopedOpError, the axis is not a constant; of an unrolled LSTM at 100 rows, and not at 3."""
    x = np.random.default_rng(0).normal(size=(2, 4, 2)).astype(np.float32)
    made = jacobian(gated, inputs={"x": spec(4, 2)}, buckets=(2,), max_parallel=4)
    assert (made.certificate.loops_unbatched, made.certificate.loops_batched) == (1, 1)
    assert made.certificate.sizes_known
    for row, got in zip(x, made(x=x), strict=True):
        example = tf.constant(row)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(example)
            elements = tf.unstack(tf.reshape(gated(example), [-1]))
        wanted = np.stack([tape.gradient(element, example) for element in elements])
        np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-6)


def test_gradients_by_weights_that_nothing_reads_take_no_room_from_the_elements() -> None:
    """Seen as: 30 of 32 elements side by side, and so two chunks, where a tenth of the memory was enough for all."""
    width, n_layers = 64, 3
    kernel = tf.Variable(tf.eye(width), name="kernel")

    def network(x: tf.Tensor) -> dict[str, tf.Tensor]:
        for _ in range(n_layers):
            x = tf.nn.relu(tf.tensordot(x, kernel, 1))
        return {"y": x}

    function = trace_example(network, {"x": spec(width)})
    (choice,) = choose(
        [Derivative(kind="jacobian", wrt="x")], function, (), [Output(name="y", dtype=tf.float32, dims=(width,))]
    )
    single, cotangents = pullback_body(function, choice, shape=[width])
    # The cotangent, and for each layer the gradients of relu and of the product.
    assert pullback_bytes(single.graph, cotangents) == width * 4 * (1 + 2 * n_layers)
