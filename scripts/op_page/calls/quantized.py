"""Numbers of few bits: the quantized ops, whose operands follow from their names and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.op_page.call import Call, Each, call, reals
from vectorizer._pfor import op_definition

__all__ = ["CALLS", "VARIANTS"]

_BYTES = {tf.qint8: np.int8, tf.quint8: np.uint8, tf.qint32: np.int32, tf.qint16: np.int16, tf.quint16: np.uint16}
#: Those whose operands the rule below finds.
_BY_RULE = """
    QuantizeDownAndShrinkRange QuantizedAdd QuantizedAvgPool QuantizedBiasAdd QuantizedConv2D QuantizedConv2DAndRelu
    QuantizedConv2DAndReluAndRequantize QuantizedConv2DAndRequantize QuantizedConv2DPerChannel QuantizedConv2DWithBias
    QuantizedConv2DWithBiasAndRelu QuantizedConv2DWithBiasAndReluAndRequantize QuantizedConv2DWithBiasAndRequantize
    QuantizedConv2DWithBiasSignedSumAndReluAndRequantize QuantizedConv2DWithBiasSumAndRelu
    QuantizedConv2DWithBiasSumAndReluAndRequantize QuantizedDepthwiseConv2D QuantizedDepthwiseConv2DWithBias
    QuantizedDepthwiseConv2DWithBiasAndRelu QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize QuantizedInstanceNorm
    QuantizedMatMul QuantizedMatMulWithBias QuantizedMatMulWithBiasAndDequantize QuantizedMatMulWithBiasAndRelu
    QuantizedMatMulWithBiasAndReluAndRequantize QuantizedMatMulWithBiasAndRequantize QuantizedMaxPool QuantizedMul
    QuantizedRelu QuantizedRelu6 QuantizedReluX RequantizationRange RequantizationRangePerChannel Requantize
    RequantizePerChannel
"""
_ATTRIBUTES: dict[str, Any] = {
    "strides": [1, 1, 1, 1],
    "padding": "SAME",
    "ksize": [1, 2, 2, 1],
    "out_type": tf.qint8,
    "clip_value_max": 6.0,
    "Toutput": tf.float32,
}
_SCALE = np.float32(0.1)
_ZERO = np.int32(0)


def _q(*shape: int, dtype: tf.DType = tf.quint8) -> Each:
    n = int(np.prod(shape))
    return Each((np.arange(n) % 100).reshape(shape).astype(_BYTES[dtype]), dtype)


def _shape(op: str, arg: str) -> tuple[int, ...]:
    if "MatMul" in op:
        return {"a": (2, 3), "b": (3, 3), "bias": (3,)}[arg]
    if arg == "filter":
        return (2, 2, 2, 1) if "Depthwise" in op else (2, 2, 2, 3)
    if arg == "bias":
        return (2,) if "Depthwise" in op or op == "QuantizedBiasAdd" else (3,)
    return (1, 4, 4, 3) if arg == "summand" else (1, 4, 4, 2)


def _by_rule(op: str) -> Call:
    definition = op_definition(op)
    first = {
        attr.name: tf.as_dtype(attr.allowed_values.list.type[0]) for attr in definition.attr if attr.type == "type"
    }
    operands: list[Any] = []
    for arg in definition.input_arg:
        dtype = tf.as_dtype(arg.type) if arg.type else first[arg.type_attr]
        dtype = tf.as_dtype(dtype)
        if dtype in _BYTES:
            operands.append(_q(*_shape(op, arg.name), dtype=dtype))
        elif arg.name == "bias":
            operands.append(reals(*_shape(op, arg.name)))
        elif "PerChannel" in op and arg.name in ("min_filter", "max_filter", "input_min", "input_max"):
            operands.append(np.full([3 if "Conv" in op else 2], 0.5, np.float32))
        else:
            operands.append(np.float32("max" in arg.name))
    needed = [
        attr.name
        for attr in definition.attr
        if not attr.HasField("default_value") and attr.name in _ATTRIBUTES and attr.name != "Toutput"
    ]
    attributes = {name: _ATTRIBUTES[name] for name in needed}
    if op == "QuantizedMatMulWithBiasAndDequantize":
        attributes["Toutput"] = tf.float32
    return Call(op, tuple(operands), attributes)


def _uniform(*values: Any, **attributes: Any) -> Callable[[str], Call]:
    return call(*values, **attributes)


_RANGE = {"quantization_min_val": -128, "quantization_max_val": 127}
_THREE = ("lhs", "rhs", "output")
_THREE_RANGES = {f"{which}_{name}": value for which in _THREE for name, value in _RANGE.items()}
_WIDE = {**_THREE_RANGES, "output_quantization_min_val": -(2**31), "output_quantization_max_val": 2**31 - 1}
_SCALES = (_SCALE, _ZERO, _SCALE, _ZERO, _SCALE, _ZERO)
_LEFT, _RIGHT = _q(2, 3, dtype=tf.qint8), _q(3, 2, dtype=tf.qint8)
_IMAGE, _KERNEL = _q(1, 2, 4, 4, dtype=tf.qint8), _q(3, 2, 2, 2, dtype=tf.qint8)

CALLS: dict[str, Callable[[str], Call]] = {
    **dict.fromkeys(_BY_RULE.split(), _by_rule),
    **dict.fromkeys(["QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4"], call(reals(2, 3), 0.0, 1.0)),
    **dict.fromkeys(
        ["FakeQuantWithMinMaxVarsGradient", "FakeQuantWithMinMaxVarsPerChannelGradient"],
        lambda op: call(
            reals(2, 3), reals(2, 3), *[np.zeros([3] if "Per" in op else [], np.float32) + v for v in (0, 1)]
        )(op),
    ),
    "Dequantize": call(_q(2, 3), 0.0, 1.0),
    "FakeQuantWithMinMaxVars": call(reals(2, 3), 0.0, 1.0),
    "FakeQuantWithMinMaxVarsPerChannel": call(reals(2, 3), np.zeros([3], np.float32), np.ones([3], np.float32)),
    "QuantizeAndDequantizeV3": call(reals(2, 3), 0.0, 1.0, 8),
    "QuantizeAndDequantizeV4Grad": call(reals(2, 3), reals(2, 3), 0.0, 1.0),
    "QuantizeV2": call(reals(2, 3), 0.0, 1.0, T=tf.quint8),
    "QuantizedBatchNormWithGlobalNormalization": call(
        _q(1, 4, 4, 2),
        *[one for _ in range(4) for one in (0.0, 1.0, _q(2))],
        0.0,
        1.0,
        out_type=tf.qint32,
        variance_epsilon=0.1,
        scale_after_normalization=True,
    ),
    "QuantizedConcat": call(0, [_q(2, 3), _q(2, 3)], [np.float32(0), np.float32(0)], [np.float32(1), np.float32(1)]),
    "QuantizedReshape": call(_q(2, 3), np.int32([3, 2]), 0.0, 1.0),
    "QuantizedResizeBilinear": call(_q(1, 4, 4, 2), np.int32([3, 5]), 0.0, 1.0),
    "UniformDequantize": _uniform(_q(2, 3, dtype=tf.qint8), _SCALE, _ZERO, Tout=tf.float32, **_RANGE),
    "UniformQuantize": _uniform(reals(2, 3), _SCALE, _ZERO, Tout=tf.qint8, **_RANGE),
    "UniformQuantizedAdd": _uniform(_q(2, 3, dtype=tf.qint32), _q(2, 3, dtype=tf.qint32), *_SCALES, **_WIDE),
    "UniformQuantizedClipByValue": _uniform(
        _q(2, 3, dtype=tf.qint32), _int32_scalar := Each(np.int32(1), tf.qint32), _int32_scalar, _SCALE, _ZERO, **_RANGE
    ),
    "UniformQuantizedConvolution": _uniform(_IMAGE, _KERNEL, *_SCALES, Tout=tf.qint32, padding="VALID", **_WIDE),
    "UniformQuantizedConvolutionHybrid": _uniform(
        reals(1, 2, 4, 4),
        _KERNEL,
        _SCALE,
        _ZERO,
        Tout=tf.float32,
        padding="VALID",
        rhs_quantization_min_val=-128,
        rhs_quantization_max_val=127,
    ),
    "UniformQuantizedDot": _uniform(_LEFT, _RIGHT, *_SCALES, Tout=tf.qint32, **_WIDE),
    "UniformQuantizedDotHybrid": _uniform(
        reals(2, 3), _RIGHT, _SCALE, _ZERO, Tout=tf.float32, rhs_quantization_min_val=-128, rhs_quantization_max_val=127
    ),
    "UniformRequantize": _uniform(
        _q(2, 3, dtype=tf.qint8),
        _SCALE,
        _ZERO,
        _SCALE,
        _ZERO,
        Tout=tf.qint8,
        input_quantization_min_val=-128,
        input_quantization_max_val=127,
        output_quantization_min_val=-128,
        output_quantization_max_val=127,
    ),
}

VARIANTS: dict[str, dict[str, Callable[[str], Call]]] = {}
