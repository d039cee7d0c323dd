"""Counting loops in finished graphs, functions included."""

from __future__ import annotations

import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer.loops import count_loops, count_ops


def graph_def(function: tf.types.experimental.GenericFunction) -> tf.compat.v1.GraphDef:
    return function.get_concrete_function(spec(3)).graph.as_graph_def()


@tf.function
def looping(x: tf.Tensor) -> tf.Tensor:
    while tf.reduce_sum(x) < 10.0:
        x += 1.0
    return x


def test_straight_graph_has_no_loop() -> None:
    assert count_loops(graph_def(tf.function(lambda x: x + 1.0))) == 0


def test_loop_at_the_top_and_in_a_called_function_is_counted() -> None:
    assert count_loops(graph_def(looping)) == 1
    assert count_loops(graph_def(tf.function(lambda x: looping(x) + 1.0))) == 1


def test_function_that_is_called_twice_counts_twice() -> None:
    assert count_loops(graph_def(tf.function(lambda x: looping(x) + looping(x + 1.0)))) == 2


def test_loop_in_a_loop_and_in_a_branch_is_counted() -> None:
    @tf.function
    def nested(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            while tf.reduce_sum(x) < 10.0:
                x += 1.0
        return x

    @tf.function
    def branch(x: tf.Tensor) -> tf.Tensor:
        if x[0] > 0:
            return looping(x)
        return x

    assert count_loops(graph_def(nested)) == 2
    assert count_loops(graph_def(branch)) == 1
    assert count_ops(graph_def(branch))["AddV2"] >= 1


def test_registered_gradient_is_not_a_call() -> None:
    @tf.custom_gradient
    def with_gradient(x: tf.Tensor) -> tuple[tf.Tensor, object]:
        return x, looping

    assert count_loops(graph_def(tf.function(with_gradient))) == 0
