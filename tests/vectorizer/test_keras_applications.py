"""Whole Keras models, as they come: their batch dimension is removed, and nothing of them loops over the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.oracle import spec
from vectorizer import BatchFunction, vectorize

layers = keras.layers
RNG = np.random.default_rng(0)
N_ROWS = 3


def with_weights(model: Any) -> Any:
    """Give a model weights under which its answers depend on its input: a fresh normalization changes nothing."""
    for variable in model.variables:
        if variable.dtype == "float32" and len(variable.shape) == 1 and "seed" not in variable.name:
            variable.assign(RNG.uniform(0.5, 1.5, variable.shape).astype(np.float32))
    return model


def _dtype(value: np.ndarray) -> tf.DType:
    return tf.string if value.dtype == object else tf.as_dtype(value.dtype)


def check(
    model: Any, inputs: dict[str, np.ndarray], *, rtol: float = 1e-4, buckets: tuple[int, ...] = (1, N_ROWS)
) -> None:
    """Compare with the model at a batch of one, and count loops against the unbatched graph."""
    specs = {name: spec(*value.shape[1:], dtype=_dtype(value)) for name, value in inputs.items()}
    vectorized = vectorize(model, inputs=specs, buckets=buckets)
    certificate = vectorized.certificate
    assert certificate.looped == ()
    assert certificate.loops_batched == certificate.loops_unbatched
    got = tf.nest.flatten(vectorized(**inputs))
    for row in range(N_ROWS):
        one = {name: tf.constant(value[row : row + 1]) for name, value in inputs.items()}
        want = tf.nest.flatten(model(one if len(one) > 1 else next(iter(one.values())), training=False))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a[row], np.asarray(b)[0], rtol=rtol, atol=rtol * float(np.max(np.abs(b))))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "application",
    [
        keras.applications.MobileNetV2,
        # One block of each is tested below, in less time.
        pytest.param(keras.applications.EfficientNetB0, marks=pytest.mark.long),
        pytest.param(keras.applications.ResNet50, marks=pytest.mark.long),
    ],
    ids=lambda application: application.__name__,
)
def test_application(application: Callable[..., Any]) -> None:
    keras.utils.set_random_seed(0)
    model = with_weights(application(weights=None, input_shape=(64, 64, 3), classes=10))
    images = RNG.uniform(0.0, 1.0, (N_ROWS, 64, 64, 3)).astype(np.float32)
    check(model, {"x": images}, buckets=(N_ROWS,))  # the layers alone are tested at one row, in less time


def squeezed_and_excited(x: Any) -> Any:
    """EfficientNet's block, without the number of them."""
    features = layers.Activation("swish")(layers.BatchNormalization()(layers.Conv2D(8, 1, use_bias=False)(x)))
    features = layers.ZeroPadding2D(((0, 1), (0, 1)))(features)
    features = layers.Activation("swish")(layers.DepthwiseConv2D(3, strides=2, use_bias=False)(features))
    gates = layers.Reshape((1, 1, 8))(layers.GlobalAveragePooling2D()(features))
    gates = layers.Conv2D(8, 1, activation="sigmoid")(layers.Conv2D(2, 1, activation="swish")(gates))
    return layers.Conv2D(4, 1, use_bias=False)(layers.multiply([features, gates]))


def bottleneck(x: Any) -> Any:
    """ResNet's block."""
    features = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(4, 1)(x)))
    features = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(features))
    return layers.ReLU()(layers.Add()([layers.Conv2D(8, 1)(x), features]))


def test_blocks_of_networks_that_only_make_test_long_runs_whole() -> None:
    keras.utils.set_random_seed(0)
    image = keras.Input((12, 12, 3))
    x = layers.Normalization(mean=[0.4, 0.5, 0.6], variance=[0.1, 0.2, 0.3])(layers.Rescaling(0.5)(image))
    x = bottleneck(layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(squeezed_and_excited(x))))
    model = with_weights(keras.Model(image, layers.Dense(3)(layers.GlobalAveragePooling2D()(x))))
    check(model, {"x": RNG.uniform(0.0, 1.0, (N_ROWS, 12, 12, 3)).astype(np.float32)})


def test_transformer_encoder_with_masked_tokens() -> None:
    keras.utils.set_random_seed(0)
    tokens = keras.Input((6,), dtype="int32", name="tokens")
    x = layers.Embedding(20, 8, mask_zero=True)(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, activation="gelu")(x)))
    model = keras.Model(tokens, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))
    check(model, {"tokens": RNG.integers(0, 8, (N_ROWS, 6)).astype(np.int32)})


RECURRENT: dict[str, Callable[[], list[Any]]] = {
    "masked bidirectional LSTM and GRU": lambda: [
        layers.Input((5,), dtype="int32"),
        layers.Embedding(9, 4, mask_zero=True),
        layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
        layers.GRU(3),
    ],
    "ConvLSTM2D": lambda: [layers.Input((3, 4, 4, 2)), layers.ConvLSTM2D(2, 3, padding="same"), layers.Flatten()],
}


def recurrent(kind: str) -> tuple[Any, dict[str, np.ndarray]]:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(RECURRENT[kind]())
    shape = (N_ROWS, *model.input_shape[1:])
    if model.input_dtype == "int32":
        return model, {"x": RNG.integers(0, 9, shape).astype(np.int32)}
    return model, {"x": RNG.normal(size=shape).astype(np.float32)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_network(kind: str) -> None:
    check(*recurrent(kind), buckets=(N_ROWS,))


@pytest.mark.slow
def test_exported_recurrent_network_is_traced_again_for_one_row(tmp_path: Any) -> None:
    """Loaded SavedModels with loops failed: their restored bodies know neither outputs nor shapes."""
    model, inputs = recurrent("masked bidirectional LSTM and GRU")
    model.export(str(tmp_path), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path))
    signature = loaded.signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    (x,) = inputs.values()
    function = BatchFunction(signature, name="recurrent")
    vectorized = vectorize(function, inputs={name: spec(*x.shape[1:], dtype=tf.as_dtype(x.dtype))}, buckets=(N_ROWS,))
    assert vectorized.certificate.looped == ()
    assert vectorized.certificate.loops_batched == vectorized.certificate.loops_unbatched
    (got,) = vectorized(**{name: x}).values()
    np.testing.assert_allclose(got, np.asarray(model(x)), rtol=1e-4, atol=1e-5)


def test_preprocessing_layers_with_their_tables() -> None:
    number, word = keras.Input((3,), name="number"), keras.Input((2,), dtype="string", name="word")
    code = keras.Input((2,), dtype="int64", name="code")
    outputs = {
        "scaled": layers.Normalization(mean=[1.0, 2.0, 3.0], variance=[1.0, 2.0, 3.0])(layers.Rescaling(0.5)(number)),
        "binned": layers.Discretization(bin_boundaries=[-0.5, 0.5], output_mode="multi_hot")(number),
        "word": layers.StringLookup(vocabulary=["a", "b"], output_mode="count")(word),
        "hashed": layers.Hashing(5)(word),
        "code": layers.IntegerLookup(vocabulary=[3, 5], output_mode="multi_hot")(code),
        "category": layers.CategoryEncoding(num_tokens=8, output_mode="count")(code),
    }
    check(
        keras.Model({"number": number, "word": word, "code": code}, outputs),
        {
            "number": RNG.normal(size=(N_ROWS, 3)).astype(np.float32),
            "word": np.array([["a", "b"], ["z", "a"], ["", "b"]], object),
            "code": np.array([[3, 5], [1, 7], [0, 3]], np.int64),
        },
    )
