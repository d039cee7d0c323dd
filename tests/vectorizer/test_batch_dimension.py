"""What is written for batches is served by the example, if its rows don't depend on each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import BatchDimensionError, BatchFunction, DeclarationError, has_batch_dimension, vectorize

layers = keras.layers
BATCHED = {"x": spec(None, 4), "word": spec(None, dtype=tf.string)}
ONE = {"x": (4,), "word": ()}


@pytest.mark.parametrize(
    ("inputs", "outputs", "examples", "asked", "expected"),
    [
        (BATCHED, {"y": spec(None, 2)}, ONE, None, True),
        (BATCHED, {"y": spec(None, 2)}, None, True, True),
        (BATCHED, {"y": spec(None, 2)}, None, None, True),
        (BATCHED, {"y": spec(2)}, None, None, False),
        ({"x": spec(1, 4)}, {"y": spec(1, 2)}, None, None, False),
        (BATCHED, {"y": spec(None, 2)}, None, False, False),
        ({"x": spec(1, 4)}, {"y": spec(1, 2)}, {"x": (4,)}, None, True),
        ({"x": spec(4)}, {"y": spec(2)}, None, None, False),
        ({"x": spec(None, 4)}, {"y": spec(2)}, {"x": (None, 4)}, None, False),
        ({"x": spec(None, None, 4)}, {"y": spec(None, 2)}, {"x": (None, 4)}, None, True),
        ({"x": spec(None)}, {"y": spec(None)}, {"x": ()}, None, True),
    ],
)
def test_batch_dimension_is_recognized_by_the_declared_inputs_of_one_example(
    *,
    inputs: Mapping[str, tf.TensorSpec],
    outputs: Mapping[str, tf.TensorSpec],
    examples: Mapping[str, tuple[int | None, ...]] | None,
    asked: bool | None,
    expected: bool,
) -> None:
    assert has_batch_dimension(inputs, outputs, examples=examples, asked=asked) is expected


@pytest.mark.parametrize(
    ("inputs", "outputs", "examples", "asked", "message"),
    [
        ({"x": tf.TensorSpec(None)}, {"y": spec(None, 2)}, None, None, "a batch dimension can't be told"),
        (BATCHED, {"y": spec(2)}, ONE, None, "fits neither as it is nor"),
        (BATCHED, {"y": spec(None, 2)}, {"x": (4,), "word": (3,)}, None, "the spec says float32.4. for one"),
        ({"x": spec(8, 4)}, {"y": spec(8, 2)}, {"x": (4,)}, None, "fits neither"),
        ({"x": spec(4)}, {"y": spec(2)}, None, True, "there is none to take off"),
        ({"x": spec(None, 4)}, {"y": spec(2)}, {"x": (None, 4)}, True, "fits neither"),
    ],
)
def test_batch_dimension_that_cant_be_told_is_refused(
    *,
    inputs: Mapping[str, tf.TensorSpec],
    outputs: Mapping[str, tf.TensorSpec],
    examples: Mapping[str, tuple[int | None, ...]] | None,
    asked: bool | None,
    message: str,
) -> None:
    with pytest.raises(DeclarationError, match=message):
        has_batch_dimension(inputs, outputs, examples=examples, asked=asked)


def refusal(model: Any) -> str:
    with pytest.raises(BatchDimensionError) as caught:
        vectorize(model, inputs={"x": spec(4)}, buckets=(1, 2))
    return str(caught.value)


def test_model_that_takes_the_mean_over_its_batch_is_refused() -> None:
    """Alone, each row is its own mean: it was served as zeros."""
    x = keras.Input((4,), name="x")
    centred = layers.Lambda(lambda rows: rows - tf.reduce_mean(rows, axis=0, keepdims=True), output_shape=(4,))(x)
    assert "mixes the rows of a batch: output 'output'" in refusal(keras.Model(x, centred))


def test_model_that_normalizes_over_its_batch_is_refused() -> None:
    class Normalized(keras.Model):
        def call(self, x: tf.Tensor) -> tf.Tensor:
            mean, variance = tf.nn.moments(x, [0])
            return (x - mean) / tf.sqrt(variance + 1e-3)

    assert "mixes the rows" in refusal(Normalized())


def test_squeeze_that_takes_the_batch_dimension_along_is_refused() -> None:
    """At one row, tf.squeeze without an axis removes the row dimension too."""

    class Squeezing(keras.Model):
        def call(self, x: tf.Tensor) -> tf.Tensor:
            return tf.squeeze(x[:, :1])

    assert "tf.squeeze without an axis" in refusal(Squeezing())


def test_function_that_changes_the_number_of_rows_is_refused() -> None:
    def sizes(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": x * 2.0, "largest": tf.reduce_max(x, axis=0, keepdims=True)}

    assert "output 'largest' has the shape [1, 4]" in refusal(BatchFunction(sizes, name="sizes"))


def test_number_of_rows_is_no_answer_of_a_row() -> None:
    def counted(x: tf.Tensor) -> tf.Tensor:
        return x * tf.cast(tf.shape(x)[0], tf.float32)

    assert "mixes the rows" in refusal(BatchFunction(counted, name="counted"))


def test_function_that_fails_on_more_than_one_row_is_refused() -> None:
    def single(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(x, [1, 4]) * 2.0

    assert "but not 8 of them in a batch" in refusal(BatchFunction(single, name="single"))


def test_model_of_a_fixed_batch_size_is_checked_at_that_size() -> None:
    model = keras.Sequential([layers.Input(batch_shape=(3, 4)), layers.Dense(2)])
    vectorized = vectorize(model, inputs={"x": spec(4)}, buckets=(1, 2))
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(vectorized(x=x), model(x), rtol=1e-5, atol=1e-6)


def test_model_saved_with_a_static_batch_dimension_of_1_can_not_be_batched() -> None:
    model = keras.Sequential([layers.Input(batch_shape=(1, 4)), layers.Dense(2)])
    vectorized = vectorize(model, inputs={"x": spec(4)}, buckets=(1, 2))
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    one_by_one = np.concatenate([model(row[None]) for row in x])
    np.testing.assert_allclose(vectorized(x=x), one_by_one, rtol=1e-5, atol=1e-6)


def test_subclass_with_a_parameter_for_each_input() -> None:
    class Pair(keras.Model):
        def call(self, a: tf.Tensor, b: tf.Tensor, *, training: bool = False) -> dict[str, tf.Tensor]:
            return {"sum": a + b, "trained": a * float(training)}

    vectorized = vectorize(Pair(), inputs={"a": spec(2), "b": spec(2)}, buckets=(1, 2))
    got = vectorized(a=np.ones((2, 2), np.float32), b=np.eye(2, dtype=np.float32))
    np.testing.assert_array_equal(got["sum"], 1.0 + np.eye(2))
    np.testing.assert_array_equal(got["trained"], np.zeros((2, 2)))
