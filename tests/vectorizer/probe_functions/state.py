"""Variables and tables that a function reads."""

from __future__ import annotations

import tensorflow as tf

from tests.vectorizer.oracle import spec
from tests.vectorizer.probe_functions.probe import ProbeFunction

__all__ = ["PROBES"]

X = {"x": spec(4)}
TOKEN = {"i": spec(dtype=tf.int32)}
WEIGHTS = tf.Variable(tf.reshape(tf.range(12.0), [4, 3]) * 0.1)
BIAS = tf.Variable([0.1, 0.2, 0.3])
TABLE = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer([b"a", b"b"], tf.constant([1, 2], tf.int64)), default_value=-1
)


def layer(x):
    return tf.nn.relu(tf.tensordot(x, WEIGHTS, 1) + BIAS)


def matrix_times_vector(x):
    return tf.linalg.matvec(WEIGHTS, x, transpose_a=True)


def variable_in_a_branch(x):
    if x[0] > 0.0:
        return tf.tensordot(x, WEIGHTS, 1)
    return x[:3] + BIAS


def variable_in_a_loop(x):
    for _ in tf.range(3):
        x = tf.tanh(x + tf.reduce_sum(BIAS))
    return x


def embedding(i):
    return tf.nn.embedding_lookup(WEIGHTS, tf.clip_by_value(i, 0, 3))


def row_of_a_variable(i):
    return WEIGHTS[tf.clip_by_value(i, 0, 3)]


def bag_of_embeddings(tokens):
    return tf.reduce_sum(tf.gather(WEIGHTS, tf.clip_by_value(tokens, 0, 3)), 0)


def table_look_up(words):
    return TABLE.lookup(words)


@tf.function
def _inner(x):
    return tf.tensordot(x, WEIGHTS, 1) + BIAS


def variable_in_a_function(x):
    return _inner(x) + _inner(-x)


PROBES = [
    *(
        ProbeFunction(function=function, inputs=X)
        for function in (layer, matrix_times_vector, variable_in_a_branch, variable_in_a_loop, variable_in_a_function)
    ),
    ProbeFunction(function=embedding, inputs=TOKEN),
    ProbeFunction(function=row_of_a_variable, inputs=TOKEN),
    ProbeFunction(function=bag_of_embeddings, inputs={"tokens": spec(3, dtype=tf.int64)}),
    ProbeFunction(function=table_look_up, inputs={"words": spec(2, dtype=tf.string)}),
]
