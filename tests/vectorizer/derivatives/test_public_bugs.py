"""Derivatives that users of TensorFlow found broken, each by its symptom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import ConversionError, Derivative, gradient, hessian, jacobian, vectorize
from vectorizer.effects import walk_ops

RNG = np.random.default_rng(0)


def test_embedding_gradients_for_each_example_are_dense_and_count_repeated_ids() -> None:
    """Seen as: ValueError, IndexedSlices are not supported in pfor."""
    table = tf.Variable(RNG.normal(size=(6, 3)).astype(np.float32), name="table")
    derivative = gradient(
        lambda ids: tf.reduce_sum(tf.gather(table, ids) ** 2) / 2.0,
        inputs={"ids": spec(4, dtype=tf.int32)},
        wrt="table",
        buckets=(1, 2),
        examples=[{"ids": [0, 1, 1, 5]}, {"ids": [2, 3, 3, 3]}],
    )
    ids = np.array([[1, 1, 1, 0], [5, 4, 5, 0], [2, 2, 3, 3]], np.int32)
    want = np.stack([np.bincount(row, minlength=6)[:, None] * table.numpy() for row in ids])
    np.testing.assert_allclose(derivative(ids=ids), want, rtol=1e-6)
    assert derivative.certificate.loops_batched == 0


def test_output_that_does_not_depend_on_the_input_has_zeros_of_the_right_shape() -> None:
    """Seen as: the Jacobian of an invariant output tiled to a surprising shape, or None."""
    constant = tf.Variable([1.0, 2.0], name="constant")
    model = vectorize(
        lambda x: {"x": x * 2.0, "constant": constant * 3.0},
        inputs={"x": spec(3)},
        buckets=(2,),
        derivatives=[
            Derivative(kind="jacobian", output="constant", wrt=("x", "constant")),
            Derivative(kind="jacobian", output="x", wrt="constant", name="other"),
        ],
    )
    got = model.derivatives["jacobian"](x=np.ones((3, 3), np.float32)) if "jacobian" in model.derivatives else None
    assert got is not None
    np.testing.assert_array_equal(got["x"], np.zeros((3, 2, 3)))
    np.testing.assert_array_equal(got["constant"], np.tile(np.eye(2) * 3.0, (3, 1, 1)))
    np.testing.assert_array_equal(model.derivatives["other"](x=np.ones((3, 3), np.float32)), np.zeros((3, 3, 2)))


def test_hessian_over_more_elements_than_fit_is_computed_in_chunks_of_the_declared_size() -> None:
    """Seen as: out of memory, all rows and all elements at once."""

    def loss(x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(tf.sin(x) * tf.reverse(x, [0]) ** 2)

    inputs = {"x": spec(7)}
    whole = hessian(loss, inputs=inputs, buckets=(1, 4))
    chunked = hessian(loss, inputs=inputs, buckets=(1, 4), max_parallel=8)
    x = RNG.normal(size=(5, 7)).astype(np.float32)
    np.testing.assert_allclose(chunked(x=x), whole(x=x), rtol=1e-5, atol=1e-5)
    assert (whole.certificate.loops_unbatched, whole.certificate.loops_batched) == (0, 0)
    # The loop over chunks is declared: the graph of one example has it too.
    assert (chunked.certificate.loops_unbatched, chunked.certificate.loops_batched) == (1, 1)
    assert elements_at_once(chunked.bucket(4)) == 2
    assert elements_at_once(chunked.bucket(1)) == elements_at_once(whole.bucket(4)) == 7


def elements_at_once(graph: Any) -> int:
    """Return the rows of the basis that the graph pulls back side by side."""
    bases = {op.outputs[0].shape[0] for op in walk_ops(graph.graph) if op.type == "OneHot"}
    assert len(bases) == 1
    return int(bases.pop())


@tf.custom_gradient  # type: ignore[untyped-decorator]
def clipped_square(x: tf.Tensor) -> Any:
    square = x * x

    def pull(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * tf.clip_by_value(square, -1.0, 1.0)

    return square, pull


def saved(tmp_path: Path, *, custom_gradients: bool) -> Any:
    """Return the loaded model, which holds its variables; its signature is the function."""
    kernel = tf.Variable(RNG.normal(size=(4, 4)).astype(np.float32), name="kernel")
    module = tf.Module()
    module.kernel = kernel

    @tf.function(input_signature=[tf.TensorSpec([4], name="x")])
    def serve(x: tf.Tensor) -> dict[str, tf.Tensor]:
        hidden = tf.nn.silu(tf.linalg.matvec(kernel, x))
        return {"hidden": hidden, "loss": tf.reduce_sum(clipped_square(hidden))}

    options = tf.saved_model.SaveOptions(experimental_custom_gradients=custom_gradients)
    tf.saved_model.save(module, str(tmp_path), signatures=serve, options=options)
    return tf.saved_model.load(str(tmp_path))


def test_loaded_model_with_custom_gradients_has_the_derivatives_of_the_function_it_was_saved_from(
    tmp_path: Path,
) -> None:
    loaded = saved(tmp_path, custom_gradients=True)
    model = vectorize(
        loaded.signatures["serving_default"],
        inputs={"x": spec(4)},
        buckets=(2,),
        derivatives=[Derivative(kind="jacobian", output="hidden"), Derivative(kind="gradient", wrt=("x", "kernel"))],
    )
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    jacobians = model.derivatives["jacobian"](x=x)
    gradients = model.derivatives["gradient"](x=x)
    (kernel,) = model.function.variables
    for row in range(3):
        before = kernel.numpy() @ x[row]
        sigmoid = 1.0 / (1.0 + np.exp(-before))
        slope = sigmoid * (1.0 + before * (1.0 - sigmoid))
        np.testing.assert_allclose(jacobians[row], slope[:, None] * kernel.numpy(), rtol=1e-4, atol=1e-5)
        upstream = np.clip((before * sigmoid) ** 2, -1.0, 1.0) * slope
        np.testing.assert_allclose(gradients["x"][row], upstream @ kernel.numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(gradients["kernel"][row], np.outer(upstream, x[row]), rtol=1e-4, atol=1e-5)


def test_model_saved_without_its_custom_gradients_says_how_to_save_it(tmp_path: Path) -> None:
    """Seen as: LookupError, gradient registry has no entry for: CustomGradient-1234."""
    loaded = saved(tmp_path, custom_gradients=False)
    with pytest.raises(ConversionError, match="experimental_custom_gradients=True"):
        jacobian(loaded.signatures["serving_default"], inputs={"x": spec(4)}, output="hidden", buckets=(1,))


def test_branches_of_single_examples_are_differentiated_by_the_branch_that_each_takes() -> None:
    def bend(x: tf.Tensor) -> tf.Tensor:
        if tf.reduce_sum(x) > 0.0:
            return x**2
        return tf.sin(x)

    derivative = jacobian(bend, inputs={"x": spec(3)}, buckets=(1, 4))
    x = RNG.normal(size=(6, 3)).astype(np.float32)
    slopes = np.where(x.sum(1, keepdims=True) > 0, 2.0 * x, np.cos(x))
    np.testing.assert_allclose(derivative(x=x), slopes[:, :, None] * np.eye(3), rtol=1e-5, atol=1e-6)
    assert derivative.certificate.loops_batched == 0
