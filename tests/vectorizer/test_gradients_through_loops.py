"""Gradients through loops: what the forward loop keeps, the backward loop of all rows finds again, each row its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless
from vectorizer._pfor import convert_rows
from vectorizer.conversions import ConversionLog
from vectorizer.converters import converters
from vectorizer.loops import count_ops

BUCKETS = (1, 4)
_RANDOM = np.random.default_rng(3)
ROWS = _RANDOM.normal(size=(4, 3)).astype(np.float32)
SERIES = _RANDOM.normal(size=(4, 5, 3)).astype(np.float32)
#: The first row, which is bucket 1's only one, takes some steps; one takes none, and one all.
COUNTS = np.array([3, 0, 5, 1], np.int32)
WEIGHTS = tf.constant(_RANDOM.normal(size=(3, 3)).astype(np.float32) * 0.5)


def with_gradient(function: Callable[..., tf.Tensor]) -> Callable[..., Any]:
    """Return the function that gives its value and the gradient by its argument of floats."""

    def both(**inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        x = next(value for value in inputs.values() if value.dtype.is_floating)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(**inputs)
        return {"value": y, "gradient": tape.gradient(y, x)}

    return both


def hold(
    function: Callable[..., Any],
    inputs: Mapping[str, Sequence[Any]],
    *,
    buckets: Sequence[int] = BUCKETS,
    xla: bool = True,
) -> Any:
    """Compare with the function itself, as a graph and under XLA, and return the largest bucket's graph."""
    vectorized = check_loopless(tf.function(function), inputs, buckets=buckets, rtol=1e-4)
    graph = vectorized.bucket(buckets[-1])
    if xla:
        batch = {name: tf.constant(np.asarray(values)[: buckets[-1]]) for name, values in inputs.items()}
        compiled = tf.function(lambda graph=graph, **tensors: graph(**tensors), jit_compile=True, autograph=False)
        for name, got in compiled(**batch).items():
            np.testing.assert_allclose(got, graph(**batch)[name], rtol=1e-4, atol=1e-4)
    return graph


def test_each_row_goes_back_as_many_steps_as_it_took() -> None:
    def predict(series: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        h = tf.zeros([3])
        for t in tf.range(n):  # it reads series[t], and so takes 5 steps at most
            h = tf.tanh(series[t] * tf.cast(t + 1, tf.float32) + tf.linalg.matvec(WEIGHTS, h))
        return tf.reduce_sum(h * h)

    hold(with_gradient(predict), {"series": SERIES, "n": COUNTS})


def test_gradient_by_a_variable_of_a_loop_with_a_bound() -> None:
    variable = tf.Variable(WEIGHTS)

    def gradient(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            for _ in tf.range(tf.minimum(n, 6)):
                x = tf.tanh(tf.linalg.matvec(variable, x))
            y = tf.reduce_sum(x)
        return tape.gradient(y, variable)

    hold(gradient, {"x": ROWS, "n": COUNTS}, buckets=(4,))


def test_loop_without_a_bound_keeps_more_than_it_first_had_room_for() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        while tf.reduce_sum(x * x) > 0.1:
            x = x * 0.9
        return tf.reduce_sum(x * x * x)

    hold(with_gradient(predict), {"x": ROWS * 10.0}, buckets=(4,), xla=False)


def test_branches_in_a_loop_leave_their_gradient_what_only_they_computed() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        for i in tf.range(tf.minimum(n, 6)):
            if x[0] > 0.0:
                x = tf.sin(x) * tf.cast(i + 1, tf.float32)
            else:
                x = x * x + 0.3
        return tf.reduce_sum(x)

    hold(with_gradient(predict), {"x": ROWS, "n": COUNTS}, buckets=(4,))


def test_loops_in_each_other_each_row_its_own_number_of_steps() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        for i in tf.range(2):
            for j in tf.range(tf.minimum(n, 5)):
                x = tf.tanh(tf.linalg.matvec(WEIGHTS, x)) * tf.cast(j + i + 1, tf.float32)
        return tf.reduce_sum(x)

    hold(with_gradient(predict), {"x": ROWS, "n": COUNTS}, buckets=(4,))


def test_inner_loop_grows_where_the_outer_one_keeps_what_it_kept() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        for i in tf.range(n % 6):  # which is not seen to be a bound
            for j in tf.range(i):
                x = tf.tanh(x * 0.9) + tf.cast(j, tf.float32)
        return tf.reduce_sum(x)

    hold(with_gradient(predict), {"x": ROWS, "n": COUNTS}, buckets=(4,), xla=False)


@pytest.mark.parametrize("grows", [False, True])
def test_gradient_of_what_was_written_to_a_list(*, grows: bool) -> None:
    def predict(series: tf.Tensor) -> tf.Tensor:
        made = tf.TensorArray(tf.float32, size=0 if grows else 5, dynamic_size=grows)
        h = tf.zeros([3])
        for t in tf.range(5):
            h = tf.tanh(series[t] + h)
            made = made.write(t, h)
        return tf.reduce_sum(made.stack() ** 2)

    hold(with_gradient(predict), {"series": SERIES}, buckets=(4,))


def test_gradient_of_a_scan_is_added_up_in_place() -> None:
    def predict(series: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.scan(lambda a, v: tf.tanh(a * 0.5 + v), series, tf.zeros([3])) ** 2)

    graph = hold(with_gradient(predict), {"series": SERIES}, buckets=(4,))
    assert count_ops(graph.graph.as_graph_def())["TensorScatterAdd"] == 1, "one element is added in each step"


def test_second_derivative_of_a_loop() -> None:
    def second(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = x
                for _ in tf.range(tf.minimum(n, 5)):
                    y = tf.tanh(tf.linalg.matvec(WEIGHTS, y))
                y = tf.reduce_sum(y * y)
            squared = tf.reduce_sum(inner.gradient(y, x) ** 2)
        return outer.gradient(squared, x)

    hold(second, {"x": ROWS, "n": COUNTS}, buckets=(4,))


def test_jacobian_runs_the_forward_loop_once_and_is_vectorized_again() -> None:
    """Vectorized over the outputs first, where the example is shared, and then over the rows."""
    variable = tf.Variable(WEIGHTS)

    def states(series: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        h = tf.zeros([3])
        for t in tf.range(n):
            h = tf.tanh(series[t] + tf.linalg.matvec(variable, h))
        return h

    def jacobian(series: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        @tf.function
        def of_one(cotangent: tf.Tensor) -> tuple[tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(series)
                y = states(series, n)
            return (tape.gradient(y, series, output_gradients=cotangent),)

        traced = of_one.get_concrete_function(tf.TensorSpec([3], tf.float32))
        log = ConversionLog()
        (rows,) = convert_rows(traced, [tf.eye(3)], rows=3, converters=converters(), log=log)
        assert not log.looped()
        assert rows.graph.get_operations(), "it is in the graph of one example"
        forward = count_ops(rows.graph.as_graph_def())
        assert forward["TensorListPushBack"] > 0, "what all outputs share is kept as it was: once"
        return rows

    def example(series: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(series)
            y = states(series, n)
        return tape.jacobian(y, series, experimental_use_pfor=False)

    vectorized = check_loopless(tf.function(jacobian), {"series": SERIES, "n": COUNTS}, buckets=(4,), rtol=1e-4)
    got = vectorized(series=SERIES, n=COUNTS)
    traced = tf.function(example)
    for row in range(4):
        want = traced(tf.constant(SERIES[row]), tf.constant(COUNTS[row]))
        np.testing.assert_allclose(got[row], want, rtol=1e-4, atol=1e-4)
