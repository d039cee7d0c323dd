"""Branches and loops, shared by all rows or different from row to row."""

from __future__ import annotations

import tensorflow as tf

from tests.vectorizer.oracle import spec
from tests.vectorizer.probe_functions.probe import ProbeFunction

__all__ = ["PROBES"]

X = {"x": spec(3)}
XN = {"x": spec(3), "n": spec(dtype=tf.int32)}


def branch(x):
    if x[0] > 0.0:
        return x * 2.0
    return -x


def branch_in_branch(x):
    if x[0] > 0.0:
        if x[1] > 0.0:
            return x + 1.0
        return x + 2.0
    return x + 3.0


def branch_with_a_loop_in_it(x):
    if x[0] > 0.0:
        for _ in tf.range(3):
            x = tf.tanh(x) + 1.0
    return x


def switch(x, n):
    return tf.switch_case(n, [lambda: x, lambda: -x, lambda: x * 3.0])


def loop_of_shared_length(x):
    for i in tf.range(4):
        x = x * 0.5 + tf.cast(i, tf.float32)
    return x


def loop_of_own_length(x, n):
    for _ in tf.range(tf.clip_by_value(n, 0, 5)):
        x = tf.sin(x) + 0.5
    return x


def loop_while_rows_want(x):
    steps = 0
    while tf.reduce_sum(tf.abs(x)) > 1.0 and steps < 20:
        x = x / 2.0
        steps += 1
    return x, steps


def loop_in_loop(x):
    for _ in tf.range(2):
        for _ in tf.range(3):
            x = tf.cos(x)
    return x


def loop_with_break(x):
    total = tf.constant(0.0)
    for i in tf.range(3):
        if x[i] < 0.0:
            break
        total += x[i]
    return total


def loop_over_elements(x):
    total = tf.constant(0.0)
    for element in x:
        total = total * 0.5 + element
    return total


def loop_that_no_example_touches(x):
    factor = tf.constant(1.0)
    for _ in tf.range(5):
        factor = factor * 1.5
    return x * factor


def loops_in_a_row(x):
    for _ in tf.range(2):
        x = x + 1.0
    while tf.abs(x[0] - 2.0) < 3.0:
        x = x + 1.0
    return x


def mapped_elements(x):
    return tf.map_fn(lambda element: element * element, x)


def scanned(x):
    return tf.scan(lambda state, element: state * 0.5 + element, x)


def folded(x):
    return tf.foldl(tf.maximum, x)


def list_written_in_a_loop(x):
    states = tf.TensorArray(tf.float32, size=4)
    for i in tf.range(4):
        x = tf.tanh(x)
        states = states.write(i, x)
    return states.stack()


@tf.function
def _in_steps(x):
    for _ in tf.range(2):
        x = tf.sigmoid(x)
    return x


def loop_in_a_function_called_twice(x):
    return _in_steps(_in_steps(x) + 1.0)


PROBES = [
    *(
        ProbeFunction(function=function, inputs=X)
        for function in (
            branch,
            branch_in_branch,
            branch_with_a_loop_in_it,
            loop_of_shared_length,
            loop_while_rows_want,
            loop_in_loop,
            loop_with_break,
            loop_over_elements,
            loop_that_no_example_touches,
            loops_in_a_row,
            mapped_elements,
            scanned,
            folded,
            list_written_in_a_loop,
            loop_in_a_function_called_twice,
        )
    ),
    ProbeFunction(function=switch, inputs=XN),
    ProbeFunction(function=loop_of_own_length, inputs=XN),
]
