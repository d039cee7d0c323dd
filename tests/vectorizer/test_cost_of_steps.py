"""What a vectorized graph must not do besides the work: it is as fast as code batched by hand only then."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless

RNG = np.random.default_rng(0)
KERNEL = tf.constant(RNG.normal(size=(3, 3, 2, 4)).astype(np.float32))
BIAS = tf.constant(RNG.normal(size=4).astype(np.float32))
BUCKETS = (2, 4)


def _ops(graph: tf.types.experimental.ConcreteFunction) -> Counter[str]:
    definition = graph.graph.as_graph_def()
    return Counter(
        node.op for node in chain(definition.node, *(function.node_def for function in definition.library.function))
    )


def test_nothing_stands_between_a_convolution_and_its_bias() -> None:
    def features(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(tf.nn.conv2d(x[tf.newaxis], KERNEL, 1, "SAME") + BIAS)[0]

    images = RNG.normal(size=(4, 5, 5, 2)).astype(np.float32)
    # Its check takes in NaN, of which a convolution that is fused with the activation too would make 0.
    vectorized = check_loopless(features, {"x": images}, buckets=BUCKETS, rtol=1e-4)
    (bias,) = (op for op in vectorized.bucket(2).graph.get_operations() if op.type == "BiasAdd")
    assert bias.inputs[0].op.type == "Conv2D"


def test_a_state_that_nothing_reads_after_the_loop_is_not_chosen_at_each_step() -> None:
    def last(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        unread, read, at = x, tf.zeros_like(x), 0
        while at < n:
            unread = tf.tanh(unread + 1.0)
            read += unread
            at += 1
        return read

    inputs = {"x": RNG.normal(size=(4, 3)).astype(np.float32), "n": np.array([3, 0, 5, 1], np.int32)}
    vectorized = check_loopless(last, inputs, buckets=BUCKETS)
    ops = _ops(vectorized.bucket(2))
    assert ops["Select"] + ops["SelectV2"] == 1


def test_a_row_that_has_left_does_not_divide_by_its_unread_counter() -> None:
    def harmonic(n: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0)
        while n > 0:
            total += 60 // n
            n -= 1
        return total

    check_loopless(harmonic, {"n": np.array([3, 0, 5, 1], np.int32)}, buckets=BUCKETS)
