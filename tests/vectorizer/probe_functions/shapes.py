"""Ops that move, cut, combine and look up; with indices of each row's own; with a variable dimension."""

from __future__ import annotations

import tensorflow as tf

from tests.vectorizer.oracle import spec
from tests.vectorizer.probe_functions.probe import ProbeFunction
from vectorizer import Length

__all__ = ["PROBES"]

X = {"x": spec(2, 3)}
INDEXED = {"x": spec(6), "i": spec(dtype=tf.int32)}


def moved(x):
    return tf.transpose(tf.reshape(x, [3, 2])), tf.reverse(x, [1]), tf.roll(x, 1, 1)


def combined(x):
    return tf.concat([x, x * 2.0], 0), tf.stack([x, -x], 1), tf.tile(x, [2, 1])


def cut(x):
    return x[:, 1:], x[..., ::2], tf.split(x, 3, 1)[1], tf.unstack(x)[0]


def padded(x):
    return tf.pad(x, [[1, 0], [0, 2]]), tf.pad(x, [[1, 1], [1, 1]], "REFLECT")


def multiplied(x):
    return x @ tf.transpose(x), tf.einsum("ij,kj->ik", x, x), tf.tensordot(x, tf.ones([3, 4]), 1)


def reduced(x):
    return tf.reduce_sum(x, 1), tf.reduce_max(x), tf.math.cumsum(x, 1), tf.nn.softmax(x), tf.linalg.norm(x)


def ordered(x):
    return tf.sort(x), tf.math.top_k(x, 2).indices, tf.argmax(x, 1)


def diagonal(x):
    return tf.linalg.diag(x), tf.linalg.band_part(x, 0, 1), tf.linalg.trace(x[:, :2])


def convolved(x):
    image = tf.reshape(x, [1, 2, 3, 1])
    kernel = tf.ones([2, 2, 1, 4]) * 0.1
    return tf.nn.conv2d(image, kernel, 1, "SAME")[0], tf.nn.max_pool2d(image, 2, 1, "VALID")[0]


def looked_up(x, i):
    return tf.gather(x, tf.clip_by_value(i, 0, 5)), tf.one_hot(i, 4)


def window_of_own(x, i):
    start = tf.clip_by_value(i, 0, 3)
    return x[start : start + 3]


def element_of_own(x, i):
    return x[tf.clip_by_value(i, 0, 5)]


def scattered(x, i):
    return tf.tensor_scatter_nd_update(x, [[tf.clip_by_value(i, 0, 5)]], [9.0])


def mean_of_true_length(x, n):
    return tf.reduce_sum(x) / tf.cast(tf.maximum(n, 1), tf.float32)


def state_of_true_length(x, n):
    state = tf.constant(0.0)
    for t in tf.range(n):
        state = state * 0.5 + x[t]
    return state


_LENGTHS = {"x": Length(max=6, buckets=(3, 6), length_input="n")}
_SEQUENCE = {"x": spec(None), "n": spec(dtype=tf.int32)}
PROBES = [
    *(
        ProbeFunction(function=function, inputs=X)
        for function in (moved, combined, cut, padded, multiplied, reduced, ordered, diagonal, convolved)
    ),
    *(
        ProbeFunction(function=function, inputs=INDEXED)
        for function in (looked_up, window_of_own, element_of_own, scattered)
    ),
    ProbeFunction(function=mean_of_true_length, inputs=_SEQUENCE, lengths=_LENGTHS),
    ProbeFunction(function=state_of_true_length, inputs=_SEQUENCE, lengths=_LENGTHS),
]
