"""``if``, ``while`` and ``for`` on an example's own values, written as Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import check, spec
from vectorizer import vectorize

#: Rows on both sides of every branch, and with different numbers of steps.
ROWS = np.array([[1, 2, 3], [-1, -2, -3], [0, 0, 0], [30, 1, 1], [0.5, -9, 4], [-0.1, 7, 7], [2, 2, 2]], np.float32)


def test_if_takes_each_rows_own_branch() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        if tf.reduce_sum(x) > 0:
            return x * 2
        return tf.reduce_max(x) - x

    assert check(predict, {"x": ROWS}).certificate.looped == ()


def test_if_without_else_and_elif() -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        kind = 0
        if x[0] > 10:
            kind = 2
        elif x[0] > 0:
            kind = 1
            x = -x
        return {"x": x, "kind": tf.constant(kind) if isinstance(kind, int) else kind}

    check(predict, {"x": ROWS})


def test_branch_that_no_row_takes_does_no_harm() -> None:
    """A gather out of range, a reshape and a maximum of nothing: each fails or differs on an empty partition."""

    def predict(x: tf.Tensor) -> tf.Tensor:
        if x[0] > 1e6:
            return tf.reshape(tf.reduce_max(tf.reshape(x, [-1])) + tf.gather(x, tf.argmax(x)) + x, [-1])
        return x

    check(predict, {"x": ROWS})


def test_while_ends_for_each_row_at_its_own_step() -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        steps = tf.constant(0)
        while tf.reduce_sum(x) < 20.0:
            x = x * 1.5 + 1.0
            steps += 1
        return {"x": x, "steps": steps}

    vectorized = check(predict, {"x": ROWS})
    assert len(set(vectorized(x=ROWS)["steps"])) > 2
    assert vectorized.certificate.loops_unbatched >= 1


def test_while_that_no_row_enters_returns_what_it_got() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        while tf.reduce_max(x) > 1e9:
            x = x / 2.0
        return x

    check(predict, {"x": ROWS})


def test_break_and_continue() -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        total = tf.constant(0.0)
        last = tf.constant(-1)
        for i in tf.range(6):
            if i == 2:
                continue
            total += x[0] + tf.cast(i, tf.float32)
            last = i
            if total > 12.0:
                break
        return {"total": total, "last": last}

    check(predict, {"x": ROWS}, n_rows=(1, 7))


def test_for_over_an_examples_own_values() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        total = tf.constant(0.0)
        for value in x:
            total = total * 0.5 + value * value
        return total

    check(predict, {"x": ROWS})


def test_python_loop_is_unrolled() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        for _ in range(3):
            x = tf.tanh(x)
        return x

    assert check(predict, {"x": ROWS}).certificate.loops_batched == 0


def test_loops_and_branches_in_each_other() -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        total = tf.constant(0.0)
        steps = tf.constant(0)
        for i in tf.range(3):
            while total < tf.cast(i, tf.float32) * 4.0:
                if x[i] > 0.0:
                    total += x[i]
                else:
                    total += 1.0
                steps += 1
        return {"total": total, "steps": steps}

    check(predict, {"x": ROWS}, n_rows=(1, 7))


def test_number_of_steps_comes_from_the_example() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        state = tf.zeros([3])
        for _ in tf.range(n):
            state = tf.tanh(state + x)
        return state

    check(predict, {"x": ROWS, "n": np.array([0, 1, 5, 2, 0, 7, 3], np.int32)}, n_rows=(1, 7))


def test_helper_functions_and_tf_functions_are_followed() -> None:
    @tf.function
    def inner(x: tf.Tensor) -> tf.Tensor:
        if x[0] > 0:
            return x
        return -x

    def helper(x: tf.Tensor) -> tf.Tensor:
        return inner(x) + inner(x + 1.0)

    def predict(x: tf.Tensor) -> tf.Tensor:
        return helper(x) * 2.0

    check(predict, {"x": ROWS})


def test_tf_function_is_taken_as_it_is() -> None:
    @tf.function(input_signature=[spec(3)])
    def predict(x: tf.Tensor) -> tf.Tensor:
        if x[0] > 0:
            return x
        return -x

    check(predict, {"x": ROWS})


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A module with a variable, a branch and a loop, from disk: its functions have no Python any more."""

    class Solver(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = tf.Variable([1.0, 2.0, 0.5])

        @tf.function
        def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
            steps = tf.constant(0)
            if x[0] > 0:
                while tf.reduce_sum(x) < 30.0:
                    x = x + self.step
                    steps += 1
            else:
                x = -x
            return {"x": x, "steps": steps}

    path = tmp_path_factory.mktemp("solver")
    solver = Solver()
    tf.saved_model.save(
        solver, str(path), signatures={"serving_default": solver.__call__.get_concrete_function(x=spec(3))}
    )
    return tf.saved_model.load(str(path))


def test_signature_of_a_saved_model_with_branch_and_loop_is_vectorized(restored: Any) -> None:
    signature = restored.signatures["serving_default"]
    got = vectorize(signature, inputs={"x": spec(3)}, buckets=(1, 4))(x=ROWS)
    for row, x in enumerate(ROWS):
        want = signature(x=tf.constant(x))
        np.testing.assert_allclose(got["x"][row], want["x"], rtol=1e-6)
        assert got["steps"][row] == want["steps"]


def test_saved_model_itself_is_vectorized_and_shares_its_variables(restored: Any) -> None:
    vectorized = vectorize(restored, inputs={"x": spec(3)}, buckets=(2,))
    before = vectorized(x=ROWS[:1])["steps"][0]
    restored.step.assign([100.0, 100.0, 100.0])
    try:
        assert vectorized(x=ROWS[:1])["steps"][0] == 1 != before
    finally:
        restored.step.assign([1.0, 2.0, 0.5])


def test_directory_without_a_call_is_no_function(tmp_path: Path) -> None:
    from vectorizer import TraceError

    tf.saved_model.save(tf.Module(), str(tmp_path))
    with pytest.raises(TraceError, match="not callable"):
        vectorize(tf.saved_model.load(str(tmp_path)), inputs={"x": spec(3)}, buckets=(1,))
