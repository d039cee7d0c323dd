"""Derivatives through loops and branches, where each row takes its own way, against differences and looped tapes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.derivatives.differences import jacobian_of
from tests.vectorizer.oracle import spec
from vectorizer import Derivative, Vectorized, gradient, jacobian, vectorize

RNG = np.random.default_rng(0)
WEIGHTS = tf.Variable(RNG.normal(size=(2, 2)) * 0.5, name="weights")
ROWS = np.array([[0.3, -0.2], [2.0, 1.0], [-4.0, 3.0]])


def shrink(x: tf.Tensor) -> dict[str, tf.Tensor]:
    while tf.reduce_sum(x * x) > 0.1:
        x = tf.tanh(tf.linalg.matvec(WEIGHTS, x)) * 0.6
    return {"state": x, "energy": tf.reduce_sum(x**3)}


def repeat(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
    for _ in tf.range(tf.minimum(n, 4)):
        x = tf.tanh(tf.linalg.matvec(WEIGHTS, x))
    return {"state": x, "energy": tf.reduce_sum(x**3)}


DERIVATIVES = [
    Derivative(kind="jacobian", output="state", wrt="x"),
    Derivative(kind="gradient", wrt=("x", "weights")),
    Derivative(kind="hessian", wrt="x"),
]


def check(model: Vectorized, function: Any, rows: np.ndarray, **others: np.ndarray) -> None:
    """Compare those that there are with central differences, of the gradient for the Hessian, and count loops."""
    jacobians = model.derivatives["jacobian"](x=rows, **others) if "jacobian" in model.derivatives else None
    gradients = model.derivatives["gradient"](x=rows, **others)
    traced = tf.function(function)
    for row, x in enumerate(rows):
        own = {name: values[row] for name, values in others.items()}
        batched = {name: values[row : row + 1] for name, values in others.items()}

        def of(output: str, x: np.ndarray, own: dict[str, Any] = own) -> np.ndarray:
            answers = traced(tf.constant(x), *map(tf.constant, own.values()))
            return np.asarray(answers[output])

        if jacobians is not None:
            np.testing.assert_allclose(jacobians[row], jacobian_of(partial(of, "state"), x), atol=1e-7)
        np.testing.assert_allclose(gradients["x"][row], jacobian_of(partial(of, "energy"), x), atol=1e-7)
        if "hessian" not in model.derivatives:
            continue
        want = jacobian_of(
            lambda x, batched=batched: model.derivatives["gradient"](x=x[None], **batched)["x"][0],  # type: ignore[misc]
            x,
        )
        np.testing.assert_allclose(model.derivatives["hessian"](x=x[None], **batched)[0], want, atol=1e-7)
    for derivative in model.derivatives.values():
        certificate = derivative.certificate
        assert certificate.loops_batched == certificate.loops_unbatched > 0, "the function's own, and back through it"


def test_while_loop_is_differentiated_through_as_many_steps_as_each_row_took() -> None:
    model = vectorize(shrink, inputs={"x": spec(2, dtype=tf.float64)}, buckets=(2,), derivatives=DERIVATIVES[:2])
    check(model, shrink, ROWS)
    assert model.is_for_xla
    assert not model.derivatives["gradient"].is_for_xla, "what the loop keeps grows while it runs"
    assert "XLA can't compile it" in model.derivatives["gradient"].certificate.to_text()
    assert not model.derivatives["gradient"].certificate.sizes_known


@pytest.mark.long
def test_loop_over_a_range_of_each_rows_own_length_is_differentiated_twice() -> None:
    inputs = {"x": spec(2, dtype=tf.float64), "n": spec(dtype=tf.int32)}
    model = vectorize(repeat, inputs=inputs, buckets=(2,), derivatives=DERIVATIVES[1:])
    assert all(derivative.is_for_xla for derivative in model.derivatives.values()), "no row takes more than 4 steps"
    assert "known beforehand" in model.derivatives["gradient"].certificate.to_text()
    check(model, repeat, ROWS, n=np.array([3, 0, 9], np.int32))


@pytest.fixture(scope="module")
def recurrent() -> Any:
    return tf.keras.Sequential(
        [tf.keras.Input((3, 2)), tf.keras.layers.LSTM(2), tf.keras.layers.Dense(2, activation="tanh")]
    )


SERIES = RNG.normal(size=(3, 3, 2)).astype(np.float32)


def looped_jacobian(function: Any) -> Any:
    """Return TensorFlow's Jacobian of one example, one output after the other."""

    @tf.function
    def jacobian_of_one(x: tf.Tensor) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = function(x)
        return tape.jacobian(y, x, experimental_use_pfor=False)

    return jacobian_of_one


def test_jacobian_of_a_loaded_model_that_holds_an_lstm_equals_the_looped_one(recurrent: Any, tmp_path: Path) -> None:
    """Seen as: pfor fails on a while loop of a loaded SavedModel; only experimental_use_pfor=False works."""
    module = tf.Module()
    module.model = recurrent
    signature = tf.function(lambda x: {"y": recurrent(x[None])[0]}, input_signature=[tf.TensorSpec([3, 2], name="x")])
    tf.saved_model.save(module, str(tmp_path), signatures=signature)
    loaded = tf.saved_model.load(str(tmp_path))
    derivative = jacobian(loaded.signatures["serving_default"], inputs={"x": spec(3, 2)}, buckets=(2,))
    got = derivative(x=SERIES)
    wanted = looped_jacobian(lambda given: recurrent(given[None])[0])
    for row, x in enumerate(SERIES):
        np.testing.assert_allclose(got[row], wanted(tf.constant(x)), rtol=1e-4, atol=1e-6)
    assert derivative.certificate.loops_batched == derivative.certificate.loops_unbatched == 2


@pytest.mark.long
def test_per_example_gradients_of_an_lstm_by_its_parameters(recurrent: Any) -> None:
    names = [variable.path for variable in recurrent.trainable_variables]

    def loss(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(recurrent(x[None])[0] ** 2)

    derivative = gradient(loss, inputs={"x": spec(3, 2)}, buckets=(2,), wrt=names)
    got = derivative(x=SERIES)
    for row, x in enumerate(SERIES):
        with tf.GradientTape() as tape:
            value = loss(tf.constant(x))
        wanted = tape.gradient(value, recurrent.trainable_variables)
        for name, want in zip(names, wanted, strict=True):
            np.testing.assert_allclose(got[name][row], want, rtol=1e-4, atol=1e-6)


def test_jacobian_of_an_adaptive_solver_comes_back() -> None:
    """Seen as: batch_jacobian through a solver that chooses its own steps never returns."""

    def solve(y: tf.Tensor) -> tf.Tensor:
        """y' = -y**3 from 0 to 1, Heun's steps, halved where they differ from Euler's."""
        t, step, n = tf.constant(0.0, tf.float64), tf.constant(0.5, tf.float64), tf.constant(0)
        while t < 1.0 and n < 32:
            n += 1
            step = tf.minimum(step, 1.0 - t)
            euler = y - step * y**3
            heun = y - step * (y**3 + euler**3) / 2.0
            if tf.reduce_max(tf.abs(heun - euler)) < 0.05:
                y, t = heun, t + step
            else:
                step = step / 2.0
        return y

    derivative = jacobian(solve, inputs={"y": spec(2, dtype=tf.float64)}, buckets=(2,))
    y = np.array([[0.1, 0.2], [1.5, -1.0], [0.9, 2.0]])
    got = derivative(y=y)
    traced = tf.function(solve)
    for row in range(3):
        want = jacobian_of(lambda value: traced(tf.constant(value)).numpy(), y[row])
        np.testing.assert_allclose(got[row], want, atol=1e-6)
