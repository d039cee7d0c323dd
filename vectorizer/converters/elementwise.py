"""Functions of single elements that pfor has no converter for; Bitcast, EuclideanNorm, ranges, audio features."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, wrap
from vectorizer.converters.constants import known_operand
from vectorizer.converters.folding import batch_folding, folded, sizes, unfolded
from vectorizer.converters.stacking import spread

__all__ = ["CONVERTERS"]


def _one_operand(pfor_input: Any) -> Any:
    """Apply to every element of the first operand; the others are parameters that all rows share."""
    for position, value in enumerate(pfor_input.inputs[1:], start=1):
        if value.is_stacked:
            not_for_these(f"operand {position} is a parameter of the whole tensor and differs from row to row")
    outputs = same_op(pfor_input, [pfor_input.stacked_input(0), *(value.t for value in pfor_input.inputs[1:])])
    return [wrap(output, stacked=True) for output in outputs]


def _broadcast(pfor_input: Any) -> Any:
    """Apply to elements of operands that broadcast: a stacked one gets as many dimensions as the others have."""
    ranks = [given.shape.rank for given in pfor_input.op.inputs]
    if None in ranks:
        not_for_these("the number of dimensions is not known")
    operands = [
        spread(value, rank=rank, to_rank=max(ranks)) for value, rank in zip(pfor_input.inputs, ranks, strict=True)
    ]
    if pfor_input.op_type not in _BROADCASTING_KERNELS:
        # The kernel wants equal shapes.
        shape = operands[0].shape
        for operand in operands[1:]:
            shape = tf.broadcast_static_shape(shape, operand.shape)
        if not shape.is_fully_defined():
            not_for_these(f"the shape {shape} is not known")
        operands = [tf.broadcast_to(operand, shape) for operand in operands]
    return wrap(same_op(pfor_input, operands)[0], stacked=True)


_BROADCASTING_KERNELS = frozenset({"NextAfter", "RandomGammaGrad"})


def _euclidean_norm(pfor_input: Any) -> Any:
    value = pfor_input.stacked_input(0)
    axes = known_operand(pfor_input, 1)
    rank = pfor_input.op.inputs[0].shape.rank
    if axes is None or rank is None:
        not_for_these("the axes are not constants")
    moved = tf.constant([int(axis) % rank + 1 for axis in axes.reshape([-1])], tf.int32)
    keep = pfor_input.get_attr("keep_dims")
    return wrap(tf.raw_ops.EuclideanNorm(input=value, axis=moved, keep_dims=keep), stacked=True)


def _nearest(pfor_input: Any) -> Any:
    """Look for the nearest of centers that all rows share. Shapes: points [rows, n, d] -> [rows, n, k] each."""
    points = pfor_input.stacked_input(0)
    shared = [pfor_input.unstacked_input(1), pfor_input.unstacked_input(2)]
    rows, n, *_ = sizes(points)
    found = same_op(pfor_input, [folded(points), *shared])
    shape = tf.stack([rows, n, tf.shape(found[0])[1]])
    return [wrap(tf.reshape(one, shape), stacked=True) for one in found]


def _lin_space(pfor_input: Any) -> Any:
    """Space numbers evenly: the ends are exact, the others are counted up from the first, as the kernel does."""
    number = known_operand(pfor_input, 2)
    if number is None or number < 1:
        not_for_these("the number of values, and so the size of the result, is not a positive constant")
    start, stop = (stacked(pfor_input.input(index), pfor_input)[:, tf.newaxis] for index in (0, 1))
    if number == 1:
        return wrap(start, stacked=True)
    step = (stop - start) / tf.cast(int(number) - 1, start.dtype)
    between = start + step * tf.range(1, int(number) - 1, dtype=start.dtype)
    return wrap(tf.concat([start, between, stop], -1), stacked=True)


def _spectrogram(pfor_input: Any) -> Any:
    """Shapes: [rows, samples, channels] -> [rows, channels, windows, frequencies]. Channels are independent."""
    audio = pfor_input.stacked_input(0)
    samples, channels = pfor_input.op.inputs[0].shape
    if samples is None or channels is None:
        not_for_these("the number of samples and channels is not known")
    side_by_side = tf.reshape(tf.transpose(audio, [1, 0, 2]), [samples, -1])
    return wrap(unfolded(same_op(pfor_input, [side_by_side])[0], sizes(audio)[0]), stacked=True)


CONVERTERS: dict[str, Converter] = {
    "ApproximateEqual": _broadcast,
    "AudioSpectrogram": _spectrogram,
    "Betainc": _broadcast,
    "Bitcast": _one_operand,
    "DataFormatDimMap": _one_operand,
    "EuclideanNorm": _euclidean_norm,
    "FakeQuantWithMinMaxArgs": _one_operand,
    "FakeQuantWithMinMaxArgsGradient": _broadcast,
    "InvGrad": _broadcast,
    "IsotonicRegression": batch_folding({0}),
    "LinSpace": _lin_space,
    "Mfcc": batch_folding({0}),
    "NearestNeighbors": _nearest,
    "NextAfter": _broadcast,
    "PopulationCount": _one_operand,
    "PreventGradient": _one_operand,
    "RandomGammaGrad": _broadcast,
    "Snapshot": _one_operand,
}
