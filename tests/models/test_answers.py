"""Each model, one example at a time, against a second implementation in plain NumPy that shares no code with it."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import digits, digits_convnet, embedding, handwriting, implied_volatility, lstm, option_price

Arrays = Mapping[str, np.ndarray]


@functools.cache
def traced(model: ModuleType) -> Any:
    return tf.function(model.predict).get_concrete_function(**model.INPUTS)


def answer(function: Any, example: Mapping[str, Any], output: str) -> np.ndarray:
    result: np.ndarray = function(**{name: tf.constant(value) for name, value in example.items()})[output].numpy()
    return result


def numpy_weights(variables: Mapping[str, tf.Variable]) -> dict[str, np.ndarray]:
    return {name: variable.numpy().astype(np.float64) for name, variable in variables.items()}


def softmax(scores: np.ndarray) -> np.ndarray:
    odds = np.exp(scores - scores.max())
    return np.asarray(odds / odds.sum())


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def numpy_digits(w: Arrays, image: np.ndarray) -> np.ndarray:
    hidden = np.maximum(image @ w["w1"] + w["b1"], 0)
    hidden = np.maximum(hidden @ w["w2"] + w["b2"], 0)
    return softmax(hidden @ w["w3"] + w["b3"])


def numpy_convolution(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    return np.asarray(np.einsum("ijchw,hwco->ijo", windows, kernel))


def numpy_convnet(w: Arrays, image: np.ndarray) -> np.ndarray:
    features = np.maximum(numpy_convolution(image.astype(np.float64), w["k1"]) + w["c1"], 0)
    features = np.maximum(numpy_convolution(features, w["k2"]) + w["c2"], 0)
    pooled = features.reshape(4, 2, 4, 2, 32).max(axis=(1, 3))
    hidden = np.maximum(pooled.ravel() @ w["w1"] + w["b1"], 0)
    return softmax(hidden @ w["w2"] + w["b2"])


def numpy_lstm(w: Arrays, strips: np.ndarray) -> np.ndarray:
    hidden = cell = np.zeros(lstm.UNITS)
    for strip in strips:
        keep, write, read, news = np.split(strip @ w["inputs"] + hidden @ w["hidden"] + w["bias"], 4)
        cell = sigmoid(keep) * cell + sigmoid(write) * np.tanh(news)
        hidden = sigmoid(read) * np.tanh(cell)
    return np.asarray(np.tanh(hidden @ w["head"]))


def numpy_embedding(table: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    total = np.zeros(embedding.DIMENSIONS)
    for token in tokens:
        total += table[int(token) % embedding.ROWS]
    return total / (np.linalg.norm(total) or 1.0)


def black(volatility: float, quote: Mapping[str, Any]) -> float:
    """Black's price in its textbook form."""
    forward, strike, years = (float(quote[name]) for name in ("forward", "strike", "years"))
    deviation = volatility * math.sqrt(years)
    d1 = math.log(forward / strike) / deviation + deviation / 2
    d2 = d1 - deviation

    def below(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    if quote["is_call"]:
        return forward * below(d1) - strike * below(d2)
    return strike * below(-d2) - forward * below(-d1)


def bisected(quote: Mapping[str, Any]) -> float:
    low, high = 0.0, 10.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if black(middle, quote) < quote["price"] else (low, middle)
    return high


@pytest.mark.parametrize(("model", "reference"), [(digits, numpy_digits), (digits_convnet, numpy_convnet)])
def test_digit_probabilities_equal_those_of_numpy(model: ModuleType, reference: Any) -> None:
    predict, w = traced(model), numpy_weights(model.weights())
    for example in itertools.islice(model.examples(), 0, None, 60):
        got = answer(predict, example, "probabilities")
        np.testing.assert_allclose(got, reference(w, example["image"]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [digits, digits_convnet])
def test_digits_that_training_never_saw_are_read_right(model: ModuleType) -> None:
    predict, (train, held_out) = traced(model), handwriting.split()
    assert not set(train) & set(held_out)
    assert len(train) + len(held_out) == len(handwriting.labels())
    examples = list(model.examples())
    read = [answer(predict, examples[index], "probabilities").argmax() for index in held_out]
    assert np.mean(read == handwriting.labels()[held_out]) > 0.95


def test_sequence_features_equal_those_of_numpy_at_every_length() -> None:
    predict, w = traced(lstm), numpy_weights(lstm.weights())
    by_length = {int(example["length"]): example for example in lstm.examples()}
    assert set(by_length) == set(range(1, lstm.MAX_STEPS + 1))
    empty: dict[str, Any] = {"strips": np.zeros((0, lstm.FEATURES), np.float32), "length": np.int32(0)}
    for example in [empty, *by_length.values()]:
        got = answer(predict, example, "features")
        np.testing.assert_allclose(got, numpy_lstm(w, example["strips"].astype(np.float64)), rtol=1e-4, atol=1e-5)


def test_what_lies_beyond_the_length_of_a_sequence_has_no_influence() -> None:
    predict = traced(lstm)
    example = next(example for example in lstm.examples() if 5 < example["length"] < 60)
    n_padding = lstm.MAX_STEPS - example["length"]
    answers = []
    for junk in (0.0, 1e6, -3.0):
        padding = np.full((n_padding, lstm.FEATURES), junk, np.float32)
        padded = {"strips": np.concatenate([example["strips"], padding]), "length": example["length"]}
        answers.append(answer(predict, padded, "features"))
    np.testing.assert_array_equal(answers[1], answers[0])
    np.testing.assert_array_equal(answers[2], answers[0])
    np.testing.assert_allclose(answers[0], answer(predict, example, "features"), rtol=1e-4, atol=1e-6)


def test_text_embeddings_equal_those_of_numpy() -> None:
    predict, table = traced(embedding), embedding.initial_table().astype(np.float64)
    for example in embedding.examples():
        got = answer(predict, example, "embedding")
        np.testing.assert_allclose(got, numpy_embedding(table, example["tokens"]), rtol=1e-4, atol=1e-6)


def test_no_words_and_any_token_at_all_have_an_embedding() -> None:
    predict, table = traced(embedding), embedding.initial_table().astype(np.float64)
    for tokens in ([], [-1], [2**31 - 1, -(2**31)], [embedding.ROWS, 0]):
        example: dict[str, Any] = {"tokens": np.array(tokens, np.int32), "length": np.int32(len(tokens))}
        got = answer(predict, example, "embedding")
        np.testing.assert_allclose(got, numpy_embedding(table, example["tokens"]), rtol=1e-4, atol=1e-6)


def test_padding_tokens_have_no_influence_on_an_embedding() -> None:
    predict, tokens = traced(embedding), embedding.tokenize("the padding must not be read")
    padded = np.concatenate([tokens, np.array([7, 0, -3], np.int32)])
    short = answer(predict, {"tokens": tokens, "length": np.int32(6)}, "embedding")
    long = answer(predict, {"tokens": padded, "length": np.int32(6)}, "embedding")
    np.testing.assert_allclose(long, short, rtol=1e-6, atol=1e-7)


def test_implied_volatilities_reprice_their_options_and_equal_those_found_by_halving() -> None:
    predict = traced(implied_volatility)
    for quote in itertools.islice(implied_volatility.examples(), 500):
        got = float(answer(predict, quote, "volatility"))
        assert black(got, quote) == pytest.approx(float(quote["price"]), rel=1e-12, abs=1e-13 * float(quote["forward"]))
        assert got == pytest.approx(bisected(quote), rel=1e-7)


def test_solving_takes_as_many_steps_as_the_quote_needs() -> None:
    solve = tf.function(implied_volatility.solve).get_concrete_function(*implied_volatility.INPUTS.values())
    quotes = itertools.islice(implied_volatility.examples(), 300)
    steps = [int(solve(*(tf.constant(value) for value in quote.values()))[1]) for quote in quotes]
    assert len(set(steps)) >= 5
    assert max(steps) < 12, "Newton's steps converge quadratically on quotes of a realistic chain"


@pytest.mark.parametrize(
    "change",
    [{"price": 0.0}, {"price": 50.0}, {"price": -1.0}, {"strike": 0.0}, {"years": 0.0}, {"forward": -1.0}]
    + [{name: value} for name in ("price", "forward", "strike", "years") for value in (math.nan, math.inf, -math.inf)],
)
def test_a_price_that_no_volatility_explains_gives_zero(change: dict[str, float]) -> None:
    quote: dict[str, Any] = {"price": 4.0, "forward": 45.0, "strike": 50.0, "years": 0.5, "is_call": True}
    assert answer(traced(implied_volatility), _typed(quote), "volatility") > 0
    assert answer(traced(implied_volatility), _typed(quote | change), "volatility") == 0


def test_a_price_that_only_a_higher_volatility_explains_gives_the_highest() -> None:
    quote = {"price": 44.999999, "forward": 45.0, "strike": 50.0, "years": 0.5, "is_call": True}
    assert answer(traced(implied_volatility), _typed(quote), "volatility") == pytest.approx(implied_volatility.HIGHEST)


def _typed(quote: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value, np.bool_ if name == "is_call" else np.float64) for name, value in quote.items()}


@pytest.mark.parametrize("model", [digits, digits_convnet, lstm, embedding, implied_volatility])
def test_a_model_runs_eagerly_as_it_runs_traced(model: ModuleType) -> None:
    example = next(iter(model.examples()))
    eager = model.predict(**{name: tf.constant(value) for name, value in example.items()})
    for output, value in eager.items():
        np.testing.assert_allclose(value.numpy(), answer(traced(model), example, output), rtol=1e-5, atol=1e-6)


def test_option_price_is_the_mean_of_what_the_option_pays() -> None:
    predict = traced(option_price)
    # Gauss-Hermite nodes of a standard normal number.
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    for option in itertools.islice(option_price.examples(), 100):
        deviation = option["volatility"] * math.sqrt(option["years"])
        final = option["forward"] * np.exp(deviation * nodes - deviation**2 / 2)
        sign = 1 if option["is_call"] else -1
        paid = np.maximum(sign * (final - option["strike"]), 0.0)
        mean = float(weights @ paid) / math.sqrt(2 * math.pi)
        assert answer(predict, option, "price") == pytest.approx(mean, abs=2e-3 * option["forward"])
