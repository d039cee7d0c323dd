"""Rounding to few bits, and back: quantize-and-dequantize, fake quantization, quantized tensors of one scale.

A range that belongs to a tensor belongs to a row here. The kernels know ranges that belong to the entries of one axis,
as the channels of a filter have: the rows are such an axis, with an example's own channels within.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, wrap
from vectorizer.converters.folding import folded, reshape_to, sizes, unfolded

__all__ = ["CONVERTERS"]


def _quantize_and_dequantize(pfor_input: Any) -> Any:
    """Shapes: values [rows, *s]; the ends of the range [] or [d], or with rows, where d is the size of ``axis``.

    V3 alone takes a given range for each entry of an axis (V2 and V4 check for a scalar), and rounds half to even.
    """
    axis, rank = pfor_input.get_attr("axis"), pfor_input.op.inputs[0].shape.rank
    if rank is None:
        not_for_these("the number of dimensions is not known")
    is_given = pfor_input.get_attr("range_given")
    is_v3 = pfor_input.op_type == "QuantizeAndDequantizeV3"
    if is_given and axis < 0 and not any(end.is_stacked for end in pfor_input.inputs[1:3]):
        return _elementwise(pfor_input)
    rounding = b"HALF_TO_EVEN" if is_v3 else pfor_input.get_attr("round_mode")
    if is_given and rounding != b"HALF_TO_EVEN":
        not_for_these("a range of each row is rounded half to even, and no other way")

    value = stacked(pfor_input.input(0), pfor_input)
    rows = sizes(value)[0]
    turned, order = value, list(range(rank + 1))
    if axis >= 0:
        order = [0, axis + 1, *(dim for dim in range(1, rank + 1) if dim != axis + 1)]
        turned = folded(tf.transpose(value, order))
    elif rank == 0:
        turned = reshape_to(value, [rows, 1])
    n_channels = sizes(turned)[0]

    def end(index: int) -> tf.Tensor:
        if not is_given:
            return tf.zeros([n_channels], value.dtype)
        given = stacked(pfor_input.input(index), pfor_input)
        per_row = sizes(given)[1] if given.shape.rank > 1 else 1
        return tf.reshape(tf.broadcast_to(reshape_to(given, [rows, per_row]), [rows, n_channels // rows]), [-1])

    options = {name: pfor_input.get_attr(name) for name in ("signed_input", "range_given", "narrow_range")}
    if rounding == b"HALF_TO_EVEN":
        n_bits = pfor_input.unstacked_input(3) if is_v3 else pfor_input.get_attr("num_bits")
        rounded = tf.raw_ops.QuantizeAndDequantizeV3(
            input=turned, input_min=end(1), input_max=end(2), num_bits=n_bits, axis=0, **options
        )
    else:
        options |= {name: pfor_input.get_attr(name) for name in ("num_bits", "round_mode")}
        rounded = tf.raw_ops.QuantizeAndDequantizeV2(
            input=turned, input_min=end(1), input_max=end(2), axis=0, **options
        )
    if axis < 0:
        return wrap(tf.reshape(rounded, tf.shape(value)), stacked=True)
    back = [order.index(dim) for dim in range(rank + 1)]
    return wrap(tf.transpose(unfolded(rounded, rows), back), stacked=True)


def _fake_quant(pfor_input: Any) -> Any:
    """Quantize with a range for each channel of each row: rows times channels are the channels of the kernel.

    Shapes: values [rows, *s, d]; the ends [d] or [rows, d].
    """
    if not any(end.is_stacked for end in pfor_input.inputs[1:]):
        return _elementwise(pfor_input)
    value, low, high = (stacked(given, pfor_input) for given in pfor_input.inputs)
    rows, n_channels = sizes(low)
    by_channel = reshape_to(value, [rows, -1, n_channels])
    turned = tf.reshape(tf.transpose(by_channel, [1, 0, 2]), [-1, rows * n_channels])
    quantized = tf.raw_ops.FakeQuantWithMinMaxVarsPerChannel(
        inputs=turned,
        min=tf.reshape(low, [-1]),
        max=tf.reshape(high, [-1]),
        num_bits=pfor_input.get_attr("num_bits"),
        narrow_range=pfor_input.get_attr("narrow_range"),
    )
    back = tf.transpose(tf.reshape(quantized, [-1, rows, n_channels]), [1, 0, 2])
    return wrap(tf.reshape(back, tf.shape(value)), stacked=True)


def _elementwise(pfor_input: Any) -> Any:
    """Apply one scale to all elements; further results, the ends of the range, are the same for all rows."""
    axes = [name for name in pfor_input.op.node_def.attr if name == "axis" or name.endswith("quantization_axis")]
    if any(pfor_input.get_attr(name) >= 0 for name in axes):
        not_for_these("it has a scale for each entry of an axis")
    shared = [pfor_input.unstacked_input(index) for index in range(1, pfor_input.num_inputs)]
    first, *ends = same_op(pfor_input, [pfor_input.stacked_input(0), *shared])
    return [wrap(first, stacked=True), *(wrap(end, stacked=False) for end in ends)]


CONVERTERS: dict[str, Converter] = {
    "Dequantize": _elementwise,
    # With a range of each row it would be of channels, whose kernel rounds what lies between two steps otherwise.
    "FakeQuantWithMinMaxVars": _elementwise,
    "FakeQuantWithMinMaxVarsPerChannel": _fake_quant,
    "QuantizeAndDequantizeV2": _quantize_and_dequantize,
    "QuantizeAndDequantizeV3": _quantize_and_dequantize,
    "QuantizeAndDequantizeV4": _quantize_and_dequantize,
    "QuantizeV2": _elementwise,
    "QuantizedRelu": _elementwise,
    "QuantizedRelu6": _elementwise,
    "UniformDequantize": _elementwise,
    "UniformQuantize": _elementwise,
    "UniformRequantize": _elementwise,
}
