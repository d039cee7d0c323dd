"""Ops that newer ones have replaced, or that spell a common one otherwise: SavedModels of any age hold them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import (
    Converter,
    keep_from_xla,
    not_for_these,
    same_op,
    stacked,
    stock_registry,
    wrap,
)
from vectorizer.converters.constants import known_operand
from vectorizer.converters.folding import batch_folding, folded, reshape_to, sizes, unfolded
from vectorizer.converters.stacking import spread

__all__ = ["CONVERTERS"]


def _bias(pfor_input: Any) -> Any:
    value, bias = pfor_input.inputs
    ranks = [given.shape.rank for given in pfor_input.op.inputs]
    if None in ranks:
        not_for_these("the number of dimensions is not known")
    return wrap(value.t + spread(bias, rank=ranks[1], to_rank=ranks[0]), stacked=True)


def _concat(pfor_input: Any) -> Any:
    """Join along an axis, which is the first operand of Concat and the last of ConcatV2."""
    position = len(pfor_input.inputs) - 1 if pfor_input.op_type == "ConcatV2" else 0
    axis = pfor_input.inputs[position]
    if axis.is_stacked:
        not_for_these("the axis differs from row to row")
    own = [stacked(piece, pfor_input) for at, piece in enumerate(pfor_input.inputs) if at != position]
    known = known_operand(pfor_input, position)
    if known is not None:
        return wrap(tf.concat(own, int(known) + (known >= 0)), stacked=True)
    keep_from_xla()
    return wrap(tf.concat(own, axis.t + tf.cast(axis.t >= 0, axis.t.dtype)), stacked=True)


def _space_to_batch(pfor_input: Any) -> Any:
    """Cut images into blocks. The kernel counts blocks first and images within: rows go between the two.

    Shapes: [rows, n, h, w, c] -> [rows, block * block * n, h', w', c].
    """
    images = pfor_input.stacked_input(0)
    rows = sizes(images)[0]
    (cut,) = same_op(pfor_input, [folded(images), pfor_input.unstacked_input(1)])
    n_blocks = pfor_input.get_attr("block_size") ** 2
    total, *rest = sizes(cut)
    blocks = reshape_to(cut, [n_blocks, rows, total // rows // n_blocks, *rest])
    return wrap(folded_blocks(tf.transpose(blocks, [1, 0, 2, 3, 4, 5])), stacked=True)


def folded_blocks(blocks: tf.Tensor) -> tf.Tensor:
    """Merge the second and third dimension: ``[a, b, c, *s]`` -> ``[a, b * c, *s]``."""
    first, second, third, *rest = sizes(blocks)
    return reshape_to(blocks, [first, second * third, *rest])


def _batch_to_space(pfor_input: Any) -> Any:
    """Undo ``_space_to_batch``."""
    cut = pfor_input.stacked_input(0)
    rows, total, *rest = sizes(cut)
    n_blocks = pfor_input.get_attr("block_size") ** 2
    blocks = tf.transpose(reshape_to(cut, [rows, n_blocks, total // n_blocks, *rest]), [1, 0, 2, 3, 4, 5])
    flat = reshape_to(blocks, [rows * total, *rest])
    (images,) = same_op(pfor_input, [flat, pfor_input.unstacked_input(1)])
    return wrap(unfolded(images, rows), stacked=True)


def _reverse(pfor_input: Any) -> Any:
    turned = tf.concat([[False], pfor_input.unstacked_input(1)], 0)
    return wrap(same_op(pfor_input, [pfor_input.stacked_input(0), turned])[0], stacked=True)


def _product(pfor_input: Any) -> Any:
    """SparseMatMul multiplies matrices of many zeros, in float32."""
    a, b = (tf.cast(value.t, tf.float32) for value in pfor_input.inputs)
    product = tf.matmul(
        a, b, transpose_a=pfor_input.get_attr("transpose_a"), transpose_b=pfor_input.get_attr("transpose_b")
    )
    return wrap(product, stacked=True)


def _to_bool(pfor_input: Any) -> Any:
    """A number is true unless it is 0, a text unless it is empty, anything larger if it has elements."""
    value, given = pfor_input.stacked_input(0), pfor_input.op.inputs[0]
    if not given.shape.is_fully_defined():
        not_for_these(f"the size of {given.shape} is not known")
    if given.shape.rank > 0:
        return wrap(tf.fill([sizes(value)[0]], given.shape.num_elements() > 0), stacked=True)
    if given.dtype == tf.string:
        return wrap(tf.strings.length(value) > 0, stacked=True)
    return wrap(value if given.dtype == tf.bool else tf.not_equal(value, tf.zeros([], value.dtype)), stacked=True)


def _permuted(pfor_input: Any) -> Any:
    """Bring what stands for the dimensions of one format into the order of another."""
    source, target = pfor_input.get_attr("src_format"), pfor_input.get_attr("dst_format")
    value = pfor_input.stacked_input(0)
    if pfor_input.op.inputs[0].shape[0] != len(source):
        # Of the dimensions of images, those of space alone.
        source, target = (bytes(one for one in form if one not in b"NC") for form in (source, target))
    order = [source.index(letter) for letter in target]
    return wrap(tf.gather(value, order, axis=1), stacked=True)


def _convolution(pfor_input: Any) -> Any:
    if pfor_input.get_attr("batch_dims") != 1:
        not_for_these("it has several batch dimensions of its own")
    return batch_folding({0})(pfor_input)


def _clip(pfor_input: Any) -> Any:
    """Clip to bounds of each row, as the kernel compares: what is not a number stays so."""
    if not any(bound.is_stacked for bound in pfor_input.inputs[1:]):
        return stock_registry()["ClipByValue"](pfor_input)
    ranks = [given.shape.rank for given in pfor_input.op.inputs]
    if None in ranks:
        not_for_these("the number of dimensions is not known")
    value = stacked(pfor_input.input(0), pfor_input)
    low, high = (
        spread(bound, rank=rank, to_rank=ranks[0]) for bound, rank in zip(pfor_input.inputs[1:], ranks[1:], strict=True)
    )
    return wrap(tf.where(value < low, low, tf.where(value > high, high, value)), stacked=True)


CONVERTERS: dict[str, Converter] = {
    "BatchToSpace": _batch_to_space,
    "BiasAddV1": _bias,
    "ClipByValue": _clip,
    "Concat": _concat,
    "ConcatV2": _concat,
    "Conv": _convolution,
    "DataFormatVecPermute": _permuted,
    "Reverse": _reverse,
    "SpaceToBatch": _space_to_batch,
    "SparseMatMul": _product,
    "ToBool": _to_bool,
}
