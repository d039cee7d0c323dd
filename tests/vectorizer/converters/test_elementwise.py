"""Functions of single elements, and features of audio."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, refused_ops
from tests.vectorizer.oracle import spec

RNG = np.random.default_rng(9)
X = RNG.uniform(0.1, 3.0, size=(8, 3, 4))
Y = RNG.uniform(0.1, 0.9, size=(8, 4))
SCALAR = RNG.uniform(0.5, 2.0, size=8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_several_operands_that_broadcast(dtype: Any) -> None:
    def predict(x: tf.Tensor, y: tf.Tensor, s: tf.Tensor) -> dict[str, tf.Tensor]:
        x, s = 0.5 + tf.abs(x), 0.5 + tf.abs(s)
        y = tf.sigmoid(y)
        one = tf.ones([], x.dtype)
        return {
            "betainc": tf.math.betainc(x, x + 1, y + tf.zeros_like(x)),
            "betainc_scalar": tf.math.betainc(s, 2 * one, y),
            "betainc_scalars": tf.math.betainc(s, s, y[0]),
            "betainc_shared": tf.math.betainc(tf.constant([1.0, 2.0, 3.0, 4.0], x.dtype), s, 0.5 * one),
            "igamma": tf.math.igamma(x, s),
            "polygamma": tf.math.polygamma(one, x),
            "zeta": tf.math.zeta(x + 1, y),
            "nextafter": tf.math.nextafter(x, tf.constant(2.0, tf.float64)) if x.dtype == tf.float64 else x,
            "nextafter_scalar": tf.math.nextafter(s, x[0]),
            "gamma_gradient": tf.raw_ops.RandomGammaGrad(alpha=s, sample=x),
        }

    given = {"x": X.astype(dtype), "y": Y.astype(dtype), "s": SCALAR.astype(dtype)}
    check_loopless(predict, given, rtol=1e-4)


def test_functions_of_one_operand() -> None:
    def predict(x: tf.Tensor, n: tf.Tensor) -> dict[str, tf.Tensor]:
        raw = tf.raw_ops
        return {
            "bits": raw.PopulationCount(x=n),
            "quantized": tf.quantization.fake_quant_with_min_max_args(x, -2.0, 2.0, 5),
            "quantized_vars": tf.quantization.fake_quant_with_min_max_vars(x, -1.0, 2.0),
            "quantized_channels": tf.quantization.fake_quant_with_min_max_vars_per_channel(
                x, [-1.0, -2.0, 0.0, -3.0], [1.0, 2.0, 3.0, 4.0]
            ),
            "quantized_gradient": raw.FakeQuantWithMinMaxArgsGradient(gradients=x, inputs=x[::-1], min=-1.0, max=1.0),
            "snapshot": raw.Snapshot(input=x),
            "guard": raw.PreventGradient(input=x),
            "dims": raw.DataFormatDimMap(x=tf.bitwise.bitwise_and(n, 3)),
            "inverse_gradient": raw.InvGrad(y=x, dy=x[::-1]),
        }

    n = RNG.integers(-(2**31), 2**31, size=(8, 5)).astype(np.int32)
    check_loopless(predict, {"x": X.astype(np.float32), "n": n})


def test_parameter_of_each_row_is_refused_by_name() -> None:
    def predict(x: tf.Tensor, low: tf.Tensor) -> tf.Tensor:
        return tf.quantization.fake_quant_with_min_max_vars(x, -1.0 - tf.abs(low), 2.0)

    assert set(refused_ops(predict, x=spec(3), low=spec())) == {"FakeQuantWithMinMaxVars"}


def test_bits_in_words_of_any_size() -> None:
    def predict(n: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "same": tf.bitcast(n, tf.uint32),
            "smaller": tf.bitcast(n, tf.uint8),
            "larger": tf.bitcast(tf.bitcast(n, tf.uint8), tf.int32),
            "scalar": tf.bitcast(n[0], tf.uint16),
        }

    check_loopless(predict, {"n": RNG.integers(-(2**31), 2**31, size=(8, 4)).astype(np.int32)})


def test_euclidean_norm_over_any_axes() -> None:
    def predict(x: tf.Tensor) -> list[tf.Tensor]:
        norm = tf.math.reduce_euclidean_norm
        return [norm(x), norm(x, 0), norm(x, -1, keepdims=True), norm(x, [0, 1])]

    check_loopless(predict, {"x": X})


def test_range_of_each_row_ends_where_the_row_says() -> None:
    check_loopless(lambda n: tf.reduce_sum(tf.range(n)), {"n": np.array([0, 5, 1, 3], np.int32)}, buckets=(4,))


def test_spectrogram_and_cepstrum_of_each_channel() -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        spectrogram = tf.raw_ops.AudioSpectrogram(input=tf.tanh(x), window_size=32, stride=16, magnitude_squared=True)
        return {
            "spectrogram": spectrogram,
            "cepstrum": tf.raw_ops.Mfcc(
                spectrogram=spectrogram, sample_rate=8000, filterbank_channel_count=8, dct_coefficient_count=5
            ),
        }

    check_loopless(predict, {"x": RNG.normal(size=(8, 100, 2)).astype(np.float32)}, rtol=1e-3)


def test_numbers_evenly_spaced_between_ends_of_each_row() -> None:
    def spaced(a: Any, b: Any) -> list[tf.Tensor]:
        return [tf.raw_ops.LinSpace(start=a, stop=b, num=n) for n in (1, 2, 7)]

    a, b = RNG.normal(size=(2, 8)).astype(np.float32)
    check_loopless(spaced, {"a": a, "b": b}, buckets=(1, 7))
    check_loopless(lambda a: spaced(a, 2.0), {"a": a}, buckets=(7,))


def test_nearest_centers_and_regressions_of_each_row() -> None:
    centers = tf.constant(RNG.normal(size=(5, 3)).astype(np.float32))

    def predict(x: tf.Tensor) -> list[tf.Tensor]:
        return [
            *tf.raw_ops.NearestNeighbors(points=x, centers=centers, k=2),
            *tf.raw_ops.IsotonicRegression(input=x),
            tf.raw_ops.ApproximateEqual(x=x, y=tf.zeros([4, 3]), tolerance=0.5),
        ]

    check_loopless(predict, {"x": RNG.normal(size=(8, 4, 3)).astype(np.float32)}, buckets=(1, 7))
