"""Rounding to few bits with ranges of each row, shared ones, and ones that are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, refused_ops
from tests.vectorizer.oracle import spec

RNG = np.random.default_rng(10)
RAW = tf.raw_ops
X = RNG.normal(size=(8, 2, 3, 4)).astype(np.float32)
LOW = RNG.uniform(-2, -1, size=8).astype(np.float32)


def quantized(x: tf.Tensor, low: Any) -> dict[str, tf.Tensor]:
    low = tf.minimum(low, -1.0)
    ends = {"input": x, "input_min": low, "input_max": -low, "range_given": True}
    return {
        "v2": RAW.QuantizeAndDequantizeV2(num_bits=5, **ends),
        "v3": RAW.QuantizeAndDequantizeV3(num_bits=6, narrow_range=True, **ends),
        "v4": RAW.QuantizeAndDequantizeV4(**ends),
        "scalar": RAW.QuantizeAndDequantizeV2(**ends | {"input": x[0, 0, 0]}),
        "unsigned": RAW.QuantizeAndDequantizeV2(signed_input=False, **ends | {"input_min": low * 0.0}),
    }


def test_quantized_and_back_with_a_range_of_each_row() -> None:
    check_loopless(quantized, {"x": X, "low": LOW}, buckets=(1, 7))
    check_loopless(lambda x: quantized(x, -1.5), {"x": X}, buckets=(7,))


def test_quantized_and_back_along_an_axis_or_with_a_range_that_is_found() -> None:
    def predict(x: tf.Tensor, low: tf.Tensor) -> list[tf.Tensor]:
        low = tf.minimum(low, -1.0)

        def found(axis: int) -> dict[str, Any]:
            none = tf.zeros([x.shape[axis]] if axis >= 0 else [])
            return {"input": x, "input_min": none, "input_max": none, "axis": axis}

        own = [
            RAW.QuantizeAndDequantizeV3(
                input=x, input_min=low * tf.ones([n]), input_max=-low * tf.ones([n]), num_bits=5, axis=axis
            )
            for axis, n in enumerate(x.shape)
        ]
        up = [RAW.QuantizeAndDequantizeV2(round_mode="HALF_UP", **found(axis)) for axis in (-1, 0, 2)]
        return [*own, *up, RAW.QuantizeAndDequantizeV4(**found(1))]

    check_loopless(predict, {"x": X, "low": LOW}, buckets=(1, 7))


def test_range_of_each_row_that_is_rounded_up_is_refused_by_name() -> None:
    def predict(x: tf.Tensor, low: tf.Tensor) -> tf.Tensor:
        return RAW.QuantizeAndDequantizeV2(
            input=x, input_min=low, input_max=2.0, range_given=True, round_mode="HALF_UP"
        )

    message = refused_ops(predict, x=spec(3), low=spec())["QuantizeAndDequantizeV2"]
    assert "half to even" in message


def test_fake_quantization_of_channels_with_a_range_of_each_row() -> None:
    def predict(x: tf.Tensor, low: tf.Tensor) -> dict[str, tf.Tensor]:
        low = tf.minimum(low, -1.0) * tf.constant([1.0, 2.0, 0.5, 3.0])
        quantize = tf.quantization.fake_quant_with_min_max_vars_per_channel
        return {
            "images": quantize(x, low, -low),
            "vector": quantize(x[0, 0], low, -low, num_bits=4, narrow_range=True),
            "shared": quantize(x, [-1.0] * 4, [1.0] * 4),
            "one_range": tf.quantization.fake_quant_with_min_max_vars(x, -1.0, 1.0),
        }

    check_loopless(predict, {"x": X, "low": LOW}, buckets=(1, 7))


def test_one_range_of_each_row_is_refused_by_name() -> None:
    def predict(x: tf.Tensor, low: tf.Tensor) -> tf.Tensor:
        return tf.quantization.fake_quant_with_min_max_vars(x, low, 1.0)

    assert "FakeQuantWithMinMaxVars" in refused_ops(predict, x=spec(3), low=spec())


@pytest.mark.parametrize("mode", ["MIN_COMBINED", "MIN_FIRST", "SCALED"])
def test_quantized_tensors_of_one_range(mode: str) -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        made, low, high = tf.quantization.quantize(x, -2.0, 2.0, tf.qint8, mode=mode)
        return tf.quantization.dequantize(made, low, high, mode=mode)

    check_loopless(predict, {"x": X}, buckets=(1, 7))


def test_uniformly_quantized_tensors() -> None:
    bits: dict[str, Any] = {"quantization_min_val": -128, "quantization_max_val": 127}

    def predict(x: tf.Tensor) -> tf.Tensor:
        made = RAW.UniformQuantize(input=x, scales=0.1, zero_points=3, Tout=tf.qint8, **bits)
        wide = RAW.UniformRequantize(
            input=made,
            input_scales=0.1,
            input_zero_points=3,
            output_scales=0.2,
            output_zero_points=0,
            Tout=tf.qint8,
            input_quantization_min_val=-128,
            input_quantization_max_val=127,
            output_quantization_min_val=-128,
            output_quantization_max_val=127,
        )
        return RAW.UniformDequantize(input=wide, scales=0.2, zero_points=0, Tout=tf.float32, **bits)

    check_loopless(predict, {"x": X}, buckets=(7,))
