"""Every kind of derivative, by inputs and by variables, against central differences that know no gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.derivatives.differences import jacobian_of
from tests.vectorizer.oracle import spec
from vectorizer import Derivative, Vectorized, jacobian, vectorize

RNG = np.random.default_rng(0)
WEIGHTS = tf.Variable(RNG.normal(size=(3, 4)), name="weights")
BIAS = tf.Variable(RNG.normal(size=3), name="bias")
N_ROWS = 5
X = RNG.normal(size=(N_ROWS, 4))
LABEL = np.array([0, 1, 2, 0, 1], np.int32)
COTANGENT = RNG.normal(size=(N_ROWS, 3))


def classify(x: tf.Tensor, label: tf.Tensor) -> dict[str, tf.Tensor]:
    probabilities = tf.nn.softmax(tf.linalg.matvec(WEIGHTS, tf.tanh(x)) + BIAS)
    return {"probabilities": probabilities, "loss": -tf.math.log(probabilities[label])}


@pytest.fixture(scope="module")
def model() -> Vectorized:
    return vectorize(
        classify,
        inputs={"x": spec(4, dtype=tf.float64), "label": spec(dtype=tf.int32)},
        buckets=(1, 4),
        examples=[{"x": X[0], "label": LABEL[0]}],
        derivatives=[
            Derivative(kind="jacobian", output="probabilities", wrt="x"),
            Derivative(kind="gradient", wrt=("x", "weights", BIAS)),
            Derivative(kind="hessian", wrt=("x", "bias")),
            Derivative(kind="vjp", output="probabilities"),
        ],
    )


def of_x(output: str, row: int) -> Any:
    return lambda x: classify(tf.constant(x), tf.constant(LABEL[row]))[output].numpy()


def of_variable(variable: tf.Variable, output: str, row: int) -> Any:
    """Return the output as a function of the variable's value."""

    def function(value: np.ndarray) -> Any:
        before = variable.numpy()
        variable.assign(value)
        answer = of_x(output, row)(X[row])
        variable.assign(before)
        return answer

    return function


@pytest.mark.parametrize("n", [0, 1, 2, N_ROWS])
def test_jacobian_of_any_number_of_rows_is_that_of_each_example(model: Vectorized, n: int) -> None:
    got = model.derivatives["jacobian"](x=X[:n], label=LABEL[:n])
    assert got.shape == (n, 3, 4)
    for row in range(n):
        np.testing.assert_allclose(got[row], jacobian_of(of_x("probabilities", row), X[row]), atol=1e-7)


def test_gradient_of_a_loss_by_the_parameters_is_one_for_each_example(model: Vectorized) -> None:
    got = model.derivatives["gradient"](x=X, label=LABEL)
    assert list(got) == ["x", "weights", "bias"]
    for row in range(N_ROWS):
        np.testing.assert_allclose(got["x"][row], jacobian_of(of_x("loss", row), X[row]), atol=1e-7)
        for variable in (WEIGHTS, BIAS):
            want = jacobian_of(of_variable(variable, "loss", row), variable.numpy())
            np.testing.assert_allclose(got[variable.name.removesuffix(":0")][row], want, atol=1e-7)


def test_hessian_has_a_block_for_each_pair(model: Vectorized) -> None:
    got = model.derivatives["hessian"](x=X, label=LABEL)
    assert {name: block.shape for name, block in got.items()} == {
        "x,x": (5, 4, 4),
        "x,bias": (5, 4, 3),
        "bias,x": (5, 3, 4),
        "bias,bias": (5, 3, 3),
    }
    np.testing.assert_allclose(got["x,bias"], got["bias,x"].swapaxes(1, 2), atol=1e-12)
    gradient = model.derivatives["gradient"]
    for row in range(N_ROWS):
        want = jacobian_of(lambda x, row=row: gradient(x=x[None], label=LABEL[row : row + 1])["x"][0], X[row])
        np.testing.assert_allclose(got["x,x"][row], want, atol=1e-7)


def test_vjp_weighs_the_outputs_elements_by_the_cotangent(model: Vectorized) -> None:
    got = model.derivatives["vjp"](x=X, label=LABEL, cotangent=COTANGENT)
    jacobians = model.derivatives["jacobian"](x=X, label=LABEL)
    np.testing.assert_allclose(got, np.einsum("ny,nyx->nx", COTANGENT, jacobians), atol=1e-12)


def test_no_derivative_loops_and_each_has_its_own_certificate(model: Vectorized) -> None:
    for name, derivative in model.derivatives.items():
        certificate = derivative.certificate
        assert certificate.loops_batched == certificate.loops_unbatched == 0
        assert [(record.rows, record.max_abs < 1e-9) for record in certificate.parity] == [(1, True), (4, True)]
        assert name in certificate.function
    places = {place for record in model.derivatives["jacobian"].certificate.ops for place in record.where}
    assert any(place.startswith("gradient of test_answers.py:") for place in places)


def test_changed_parameters_change_the_derivative(model: Vectorized) -> None:
    before = model.derivatives["jacobian"](x=X, label=LABEL)
    value = WEIGHTS.numpy()
    WEIGHTS.assign(value * 2.0)
    after = model.derivatives["jacobian"](x=X, label=LABEL)
    want = jacobian_of(of_x("probabilities", 0), X[0])
    WEIGHTS.assign(value)
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after[0], want, atol=1e-7)


def test_a_notebook_gets_a_jacobian_in_one_call() -> None:
    derivative = jacobian(lambda x: x[:2] * x[1:], inputs={"x": spec(3)}, buckets=(2,))
    np.testing.assert_array_equal(derivative(x=[[1.0, 2.0, 3.0]]), [[[2.0, 1.0, 0.0], [0.0, 3.0, 2.0]]])
