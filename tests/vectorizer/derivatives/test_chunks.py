"""Jacobians of more elements than are computed side by side: the backward pass is in a loop over chunks of them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import jacobian


def gated(x: tf.Tensor) -> tf.Tensor:
    """Use ops whose gradients take axes, places and sizes from the forward pass."""
    news, gate = tf.split(x, 2)
    mixed = tf.concat([news * tf.sigmoid(gate), gate[1:] ** 2], 0)
    turned = tf.roll(tf.transpose(mixed, [1, 0]), 1, axis=1)
    return tf.gather(tf.pad(turned, [[0, 0], [1, 1]], "REFLECT"), [4, 0, 2], axis=1)


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
