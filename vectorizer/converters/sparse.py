"""Sparse tensors in parts (places, values, shape), where a row has as many values as every other.

All rows are one sparse tensor: the number of the row is the first coordinate of each place. Its places stay in order,
and none reaches into another row. A product with a dense matrix has no such dimension: there the rows are blocks along
the diagonal, or, where all rows share the sparse matrix, columns of one dense matrix.
Results whose number of values depends on the values have no batched form.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, wrap
from vectorizer.converters.constants import known_operand
from vectorizer.converters.folding import folded, reshape_to, sizes, unfolded
from vectorizer.converters.stacking import numbered, spread

__all__ = ["CONVERTERS"]


def _places(pfor_input: Any, index: int = 0) -> tf.Tensor:
    """Return the places of all rows' values: [rows, k, d] -> [rows * k, d + 1]."""
    return folded(numbered(stacked(pfor_input.input(index), pfor_input)))


def _shape(pfor_input: Any, index: int, rows: Any) -> tf.Tensor:
    """Return the shape of all rows' tensor, of which all rows have the same: [d] -> [d + 1]."""
    shape = pfor_input.unstacked_input(index)
    return tf.concat([tf.cast(tf.reshape(rows, [1]), shape.dtype), shape], 0)


def _sparse(pfor_input: Any) -> tuple[Any, list[tf.Tensor]]:
    """Return the number of rows, and places, values and shape of all rows' tensor, from the first three operands."""
    values = stacked(pfor_input.input(1), pfor_input)
    rows = sizes(values)[0]
    return rows, [_places(pfor_input), folded(values), _shape(pfor_input, 2, rows)]


def _to_dense(pfor_input: Any) -> Any:
    """Shapes: places [rows, k, d], [rows, k] or [rows]; values [rows, k] or [rows], or one default for all of them."""
    places = stacked(pfor_input.input(0), pfor_input)
    rows = sizes(places)[0]
    n_dims = pfor_input.op.inputs[1].shape[0]
    values = stacked(pfor_input.input(2), pfor_input)
    places = reshape_to(places, [rows, -1, n_dims])
    if pfor_input.input(3).is_stacked:
        not_for_these("the default differs from row to row")
    n_values = tf.shape(places)[1]
    each = tf.broadcast_to(reshape_to(values, [rows, -1]), tf.stack([rows, n_values]))
    inputs = [folded(numbered(places)), _shape(pfor_input, 1, rows), tf.reshape(each, [-1]), pfor_input.input(3).t]
    return wrap(same_op(pfor_input, inputs)[0], stacked=True)


def _times_dense(pfor_input: Any) -> Any:
    """Shapes: places [rows, k, 2], values [rows, k], shape [2], dense [rows, m, n] -> [rows, l, n]."""
    adjoint_a, adjoint_b = pfor_input.get_attr("adjoint_a"), pfor_input.get_attr("adjoint_b")
    shape, right = pfor_input.unstacked_input(2), pfor_input.input(3)

    def multiply(places: tf.Tensor, values: tf.Tensor, shape: tf.Tensor, dense: tf.Tensor) -> tf.Tensor:
        product: tf.Tensor = tf.raw_ops.SparseTensorDenseMatMul(
            a_indices=places, a_values=values, a_shape=shape, b=dense, adjoint_a=adjoint_a, adjoint_b=False
        )
        return product

    if not pfor_input.input(0).is_stacked and not pfor_input.input(1).is_stacked:
        dense = tf.linalg.adjoint(right.t) if adjoint_b else right.t
        rows, inner, columns = sizes(dense)
        side_by_side = reshape_to(tf.transpose(dense, [1, 0, 2]), [inner, rows * columns])
        product = multiply(pfor_input.input(0).t, pfor_input.input(1).t, shape, side_by_side)
        split = reshape_to(product, [sizes(product)[0], rows, columns])
        return wrap(tf.transpose(split, [1, 0, 2]), stacked=True)
    places, values, dense = (stacked(pfor_input.input(index), pfor_input) for index in (0, 1, 3))
    dense = tf.linalg.adjoint(dense) if adjoint_b else dense
    rows = sizes(values)[0]
    block = tf.cast(shape, places.dtype)
    # A place out of range would lie in the next row's block.
    inside = tf.reduce_all((places >= 0) & (places < block), -1, keepdims=True)
    number = reshape_to(tf.range(tf.cast(rows, places.dtype)), [rows, 1, 1])
    moved = tf.where(inside, places + number * block, tf.constant(-1, places.dtype))
    product = multiply(
        folded(moved), folded(values), tf.cast(block * tf.cast(rows, block.dtype), shape.dtype), folded(dense)
    )
    return wrap(unfolded(product, rows), stacked=True)


def _reduced(pfor_input: Any) -> Any:
    _, parts = _sparse(pfor_input)
    axes = known_operand(pfor_input, 3)
    rank = pfor_input.op.inputs[2].shape[0]
    if axes is None or rank is None:
        not_for_these("the axes are not constants")
    moved = tf.constant([int(axis) % rank + 1 for axis in axes.reshape([-1])], tf.int32)
    return wrap(same_op(pfor_input, [*parts, moved])[0], stacked=True)


def _with_dense(pfor_input: Any) -> Any:
    """Combine with a dense tensor that broadcasts; the result is values, or for a sum the whole dense tensor."""
    rows, parts = _sparse(pfor_input)
    rank, dense_rank = pfor_input.op.inputs[2].shape[0], pfor_input.op.inputs[3].shape.rank
    if rank is None or dense_rank is None:
        not_for_these("the number of dimensions is not known")
    dense = pfor_input.input(3)
    if pfor_input.op_type == "SparseTensorDenseAdd":
        return wrap(same_op(pfor_input, [*parts, stacked(dense, pfor_input)])[0], stacked=True)
    (values,) = same_op(pfor_input, [*parts, spread(dense, rank=dense_rank, to_rank=rank)])
    return wrap(unfolded(values, rows), stacked=True)


def _reordered(pfor_input: Any) -> Any:
    rows, parts = _sparse(pfor_input)
    places, values = same_op(pfor_input, parts)
    return [wrap(unfolded(places[:, 1:], rows), stacked=True), wrap(unfolded(values, rows), stacked=True)]


def _reshaped(pfor_input: Any) -> Any:
    places = stacked(pfor_input.input(0), pfor_input)
    rows = sizes(places)[0]
    moved, shape = same_op(pfor_input, [_places(pfor_input), _shape(pfor_input, 1, rows), _shape(pfor_input, 2, rows)])
    return [wrap(unfolded(moved[:, 1:], rows), stacked=True), wrap(shape[1:], stacked=False)]


def _softmax(pfor_input: Any) -> Any:
    rows, parts = _sparse(pfor_input)
    return wrap(unfolded(same_op(pfor_input, parts)[0], rows), stacked=True)


CONVERTERS: dict[str, Converter] = {
    "SparseDenseCwiseAdd": _with_dense,
    "SparseDenseCwiseDiv": _with_dense,
    "SparseDenseCwiseMul": _with_dense,
    "SparseReduceMax": _reduced,
    "SparseReduceSum": _reduced,
    "SparseReorder": _reordered,
    "SparseReshape": _reshaped,
    "SparseSoftmax": _softmax,
    "SparseTensorDenseAdd": _with_dense,
    "SparseTensorDenseMatMul": _times_dense,
    "SparseToDense": _to_dense,
}
