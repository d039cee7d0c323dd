"""Asserts judge every row, in the function, in its branches and in its loops, with the failing row's own message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import one_by_one, spec
from vectorizer import Vectorized, vectorize

X = {"x": spec(3)}
GOOD = [1.0, 2.0, 3.0]
OTHER = [4.0, 5.0, 6.0]


def at_the_top(x: tf.Tensor) -> tf.Tensor:
    tf.debugging.assert_greater(x, 0.0, message="not positive")
    return x * 2.0


def on_the_path(x: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(x > 0.0), ["not positive", x], summarize=3)]):
        return tf.identity(x) * 2.0


def in_a_branch(x: tf.Tensor) -> tf.Tensor:
    if x[0] < 2.0:
        tf.debugging.assert_greater(x, 0.0, message="not positive")
        x += 1.0
    return x * 2.0


def alone_in_a_branch(x: tf.Tensor) -> tf.Tensor:
    if x[0] < 2.0:
        tf.debugging.assert_greater(x, 0.0, message="not positive")
    return x * 2.0


def in_a_loop(x: tf.Tensor) -> tf.Tensor:
    while tf.reduce_sum(x) < 30.0:
        tf.debugging.assert_greater(x, 0.0, message="not positive")
        x *= 2.0
    return x


def in_a_counted_loop(x: tf.Tensor) -> tf.Tensor:
    for _ in tf.range(3):
        tf.debugging.assert_greater(x, 0.0, message="not positive")
        x *= 2.0
    return x


@tf.function
def positive(x: tf.Tensor) -> None:
    tf.debugging.assert_greater(x, 0.0, message="not positive")


def in_a_called_function(x: tf.Tensor) -> tf.Tensor:
    positive(x)
    return x * 2.0


def of_numerics(x: tf.Tensor) -> tf.Tensor:
    return tf.debugging.check_numerics(tf.math.log(x), "not positive")


def of_numerics_unused(x: tf.Tensor) -> tf.Tensor:
    tf.debugging.assert_all_finite(tf.math.log(x), "not positive")
    return x


def message(function: Callable[..., Any], **inputs: Any) -> str:
    """Return what is said, without the place and the node that says it."""
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        function(**inputs)
    lines = [line for line in str(caught.value.message).splitlines() if "Detected at node" not in line]
    start = next(n for n, line in enumerate(lines) if "assertion failed" in line or "not positive" in line)
    return "\n".join(lines[start:]).split("\n\t [[")[0].split("\n\n")[0]


FUNCTIONS = [
    at_the_top,
    on_the_path,
    in_a_branch,
    alone_in_a_branch,
    in_a_loop,
    in_a_counted_loop,
    in_a_called_function,
    of_numerics,
    of_numerics_unused,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_assert_judges_every_row_with_the_failing_rows_own_message(function: Callable[..., Any]) -> None:
    """An assert that no output depends on was dropped: 2 * x answered -2 for -1."""
    vectorized = vectorize(function, inputs=X, buckets=(1, 4) if function is at_the_top else (4,))
    compiled = tf.function(function)
    bad = np.array([1.0, -2.5, 3.0], np.float32)
    alone = message(compiled, x=tf.constant(bad))
    assert message(vectorized, x=[bad]) == alone
    for rows in ([bad, GOOD, OTHER], [GOOD, bad, OTHER, GOOD], [GOOD, OTHER, GOOD, bad], [GOOD] * 4 + [bad]):
        assert message(vectorized, x=rows) == alone
    good = np.array([GOOD, OTHER, [3.0, 1.0, 1.0]], np.float32)
    np.testing.assert_allclose(vectorized(x=good), [row[0] for row in one_by_one(compiled, {"x": good})], rtol=1e-6)


def branchy(x: tf.Tensor, checked: tf.Tensor) -> tf.Tensor:
    if checked:
        tf.debugging.assert_greater(x, 0.0)
        x = x + 1.0
    return x


def stops_early(x: tf.Tensor, checked: tf.Tensor) -> tf.Tensor:
    steps = tf.where(checked, 3, 1)
    step = 0
    while step < steps:
        tf.debugging.assert_greater(x, 0.0)
        x = x - 1.0
        step += 1
    return x


@pytest.mark.parametrize(("function", "negative_is_fine"), [(branchy, True), (stops_early, False)])
def test_rows_that_do_not_run_an_assert_are_not_judged(function: Callable[..., Any], *, negative_is_fine: bool) -> None:
    vectorized = vectorize(function, inputs={"x": spec(), "checked": spec(dtype=tf.bool)}, buckets=(4,))
    x = [5.0, -1.0 if negative_is_fine else 0.5, 4.0]
    checked = [True, False, True]
    want = one_by_one(function, {"x": np.float32(x), "checked": np.array(checked)})
    np.testing.assert_array_equal(vectorized(x=x, checked=checked), [row[0] for row in want])
    with pytest.raises(tf.errors.InvalidArgumentError):
        vectorized(x=x, checked=[True, True, True])


def test_assert_that_all_rows_share_is_kept() -> None:
    limit = tf.Variable(1.0)

    def predict(x: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_less(limit, 2.0)
        return x

    vectorized: Vectorized = vectorize(predict, inputs=X, buckets=(2,))
    assert vectorized(x=[GOOD]).shape == (1, 3)
    limit.assign(3.0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        vectorized(x=[GOOD])
