"""Fused batch normalization with numbers of each row, and half the sum of squares."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, stock_registry, wrap
from vectorizer.converters.folding import folded, reshape_to, sizes, unfolded

__all__ = ["CONVERTERS"]


def _fused_batch_norm(pfor_input: Any) -> Any:
    """Normalize by given means and variances; where they are taken from the batch, pfor's own way is right.

    Shapes: values [rows, n, h, w, c], scale, offset, mean and variance [c] or [rows, c].
    """
    if pfor_input.get_attr("is_training"):
        if pfor_input.op_type not in stock_registry():
            not_for_these("statistics of an example's own batch have a batched form in FusedBatchNormV3 alone")
        return stock_registry()[pfor_input.op_type](pfor_input)
    values = stacked(pfor_input.input(0), pfor_input)
    rows = sizes(values)[0]
    if not any(given.is_stacked for given in pfor_input.inputs[1:]):
        normalized = same_op(pfor_input, [folded(values), *(given.t for given in pfor_input.inputs[1:])])[0]
        return [wrap(unfolded(normalized, rows), stacked=True), *_statistics(pfor_input)]
    channels_last = pfor_input.get_attr("data_format") in (b"NHWC", b"NDHWC")

    def along_channels(given: Any) -> tf.Tensor:
        n_rows, n_channels = sizes(given.t) if given.is_stacked else (1, sizes(given.t)[0])
        inner = [1] * (len(values.shape) - 3)
        return reshape_to(
            given.t, [n_rows, 1, *inner, n_channels] if channels_last else [n_rows, 1, n_channels, *inner]
        )

    scale, offset, mean, variance = map(along_channels, pfor_input.inputs[1:])
    factor = tf.math.rsqrt(variance + pfor_input.get_attr("epsilon")) * scale
    normalized = tf.cast((tf.cast(values, scale.dtype) - mean) * factor + offset, values.dtype)
    return [wrap(normalized, stacked=True), *_statistics(pfor_input)]


def _statistics(pfor_input: Any) -> list[Any]:
    """Return the other outputs: mean and variance as they were given. The kernel leaves its reserve uninitialized."""
    mean, variance = pfor_input.inputs[3:5]
    rest = [wrap(tf.zeros([], output.dtype), stacked=False) for output in pfor_input.outputs[5:]]
    return [mean, variance, mean, variance, *rest]


def _l2_loss(pfor_input: Any) -> Any:
    value = pfor_input.stacked_input(0)
    return wrap(tf.reduce_sum(tf.square(value), list(range(1, len(value.shape)))) / 2, stacked=True)


CONVERTERS: dict[str, Converter] = {
    "FusedBatchNorm": _fused_batch_norm,
    "FusedBatchNormV2": _fused_batch_norm,
    "FusedBatchNormV3": _fused_batch_norm,
    "L2Loss": _l2_loss,
}
