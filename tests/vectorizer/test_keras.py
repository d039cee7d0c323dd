"""Keras models are written for batches; they are served by the example."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import ProbeError, Vectorized, vectorize

layers = keras.layers
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def seeded() -> None:
    keras.utils.set_random_seed(0)


def compare(model: Any, vectorized: Vectorized, x: np.ndarray) -> None:
    want = np.stack([np.asarray(model(row[None], training=False))[0] for row in x])
    for n in (1, 2, len(x)):
        np.testing.assert_allclose(vectorized(x=x[:n]), want[:n], rtol=1e-4, atol=1e-5)


def test_dense_network_with_dropout_and_normalization() -> None:
    model = keras.Sequential(
        [
            layers.Input((8,)),
            layers.Dense(16, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(3, activation="softmax"),
        ]
    )
    vectorized = vectorize(model, inputs={"x": spec(8)}, buckets=(1, 4))
    compare(model, vectorized, RNG.normal(size=(7, 8)).astype(np.float32))
    assert vectorized.certificate.looped == ()


def test_convolutional_network() -> None:
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(4, 3, padding="same", activation="relu"),
            layers.MaxPool2D(),
            layers.Conv2D(4, 3, strides=2),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2),
        ]
    )
    vectorized = vectorize(model, inputs={"x": spec(8, 8, 1)}, buckets=(1, 4))
    compare(model, vectorized, RNG.normal(size=(5, 8, 8, 1)).astype(np.float32))
    assert vectorized.certificate.looped == ()


def test_embedding_and_lstm() -> None:
    """At one row, its recurrent cell's squeeze took the row dimension off with its own."""
    model = keras.Sequential([layers.Input((5,), dtype="int32"), layers.Embedding(9, 4), layers.LSTM(3)])
    vectorized = vectorize(model, inputs={"x": spec(5, dtype=tf.int32)}, buckets=(1, 3))
    compare(model, vectorized, RNG.integers(0, 9, (4, 5)).astype(np.int32))


def test_several_named_inputs_and_outputs() -> None:
    a, b = keras.Input((2,), name="a"), keras.Input((3,), name="b")
    model = keras.Model({"a": a, "b": b}, {"sum": layers.Dense(2)(a) + layers.Dense(2)(b), "b": b})
    vectorized = vectorize(model, inputs={"a": spec(2), "b": spec(3)}, buckets=(2,))
    x, y = RNG.normal(size=(3, 2)).astype(np.float32), RNG.normal(size=(3, 3)).astype(np.float32)
    got = vectorized(a=x, b=y)
    want = model({"a": x, "b": y})
    np.testing.assert_allclose(got["sum"], want["sum"], rtol=1e-5)
    np.testing.assert_array_equal(got["b"], y)


TEXTS = np.array(["the cat sat on the mat", "", "a dog! ate, the cat", "fish", "the " * 9, "unheard of"], object)


def words(**options: Any) -> Any:
    layer = layers.TextVectorization(max_tokens=20, **options)
    layer.adapt(TEXTS)
    return layer


def test_text_goes_in_as_it_is_typed_and_a_model_takes_it_apart_without_a_loop() -> None:
    model = keras.Sequential(
        [
            layers.Input((1,), dtype="string"),
            words(output_sequence_length=6),
            layers.Embedding(20, 4),
            layers.GlobalAveragePooling1D(),
            layers.Dense(2),
        ]
    )
    vectorized = vectorize(model, inputs={"text": spec(1, dtype=tf.string)}, buckets=(1, 4))
    want = np.asarray(model(tf.constant(TEXTS[:, np.newaxis])))
    for n in (1, 2, 6):
        np.testing.assert_allclose(vectorized(text=TEXTS[:n, np.newaxis]), want[:n], rtol=1e-4, atol=1e-5)
    assert (vectorized.certificate.loops_batched, vectorized.certificate.looped) == (0, ())


def test_words_of_one_text_come_back_as_many_as_they_are_and_counted() -> None:
    ids, counts = words(), words(output_mode="multi_hot")
    vectorized = vectorize(
        lambda text: {"ids": ids(text), "counts": counts(text)}, inputs={"text": spec(dtype=tf.string)}, buckets=(1, 4)
    )
    answers = vectorized(text=TEXTS)
    for row, text in enumerate(TEXTS):
        np.testing.assert_array_equal(answers["ids"][row], ids(text))
        np.testing.assert_array_equal(answers["counts"][row], counts(text))
    assert (vectorized.certificate.loops_batched, vectorized.certificate.looped) == (0, ())


def test_shape_that_a_layer_states_and_does_not_keep_is_refused_with_what_to_write() -> None:
    """Keras pads a text without words to nothing, and says that it is six long."""
    layer = words(output_sequence_length=6)
    inputs = {"text": spec(dtype=tf.string)}
    with pytest.raises(ProbeError, match=r"shape \(6,\) by its graph.* it has \(0,\).* give it \[text\]"):
        vectorize(lambda text: {"ids": layer(text)}, inputs=inputs, buckets=(2,))
    vectorized = vectorize(lambda text: layer([text])[0], inputs=inputs, buckets=(4,))
    np.testing.assert_array_equal(vectorized(text=TEXTS[:4]), layer(TEXTS[:4]))
    assert vectorized.certificate.loops_batched == 0
