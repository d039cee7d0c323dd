"""Ops that loop by permission, in the open or inside a converter of TensorFlow's that says nothing of it."""

from __future__ import annotations

import tensorflow as tf

from tests.vectorizer.oracle import spec
from tests.vectorizer.probe_functions.probe import ProbeFunction

__all__ = ["PROBES"]

X = {"x": spec(4)}
IMAGE = {"x": spec(4, 4, 2)}
KERNEL = tf.constant(0.1, shape=[2, 2, 2, 1])


def _nearest(x):
    return tf.raw_ops.NearestNeighbors(points=x[:1, None], centers=x[:, None], k=1)[1]


def _depthwise(x):
    return tf.nn.depthwise_conv2d(x[None], KERNEL, [1, 1, 1, 1], "SAME")[0]


def nearest(x):
    return _nearest(x)


def nearest_twice(x):
    return _nearest(x) + _nearest(x * 2.0)


def nearest_in_a_loop(x):
    for _ in tf.range(2):
        x = x * 0.5 + tf.reshape(_nearest(x), [])
    return x


def nearest_in_a_branch(x):
    if x[0] > 0.0:
        return x + tf.reshape(_nearest(x), [])
    return x


def serialized(x):
    return tf.strings.length(tf.io.serialize_tensor(x))


def ragged_range(x):
    limits = tf.cast(tf.clip_by_value(x[:2], 0.0, 3.0), tf.int32)
    return tf.raw_ops.RaggedRange(starts=[0, 0], limits=limits, deltas=[1, 1])[0]


def formatted(words):
    return tf.strings.format("{}", words)


def file_of_an_image(pixels):
    return tf.io.encode_jpeg(pixels)


def depthwise(x):
    return _depthwise(x)


def depthwise_in_a_loop(x):
    for _ in tf.range(2):
        x = _depthwise(x)
    return x


def depthwise_in_a_branch(x):
    if x[0, 0, 0] > 0.0:
        return _depthwise(x)
    return x


_called = tf.function(_depthwise)


def depthwise_in_a_function_called_twice(x):
    return _called(_called(x))


def kernel_of_own(x, kernel):
    return tf.nn.conv2d(x[None], kernel, 1, "SAME")[0]


PROBES = [
    *(
        ProbeFunction(function=function, inputs=X)
        for function in (nearest, nearest_twice, nearest_in_a_loop, nearest_in_a_branch, serialized, ragged_range)
    ),
    ProbeFunction(function=formatted, inputs={"words": spec(3, dtype=tf.string)}),
    ProbeFunction(function=file_of_an_image, inputs={"pixels": spec(2, 2, 1, dtype=tf.uint8)}),
    *(
        ProbeFunction(function=function, inputs=IMAGE, stock=("DepthwiseConv2dNative",))
        for function in (depthwise, depthwise_in_a_loop, depthwise_in_a_branch, depthwise_in_a_function_called_twice)
    ),
    ProbeFunction(function=kernel_of_own, inputs={"x": spec(4, 4, 1), "kernel": spec(2, 2, 1, 1)}, stock=("Conv2D",)),
]
