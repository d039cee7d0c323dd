"""Matrices of each row: determinants, decompositions, solvers, products, diagonals.

The kernels take any number of leading dimensions, of which the rows are one more. Where an operand is shared it is
repeated, except in products, which broadcast.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, not_for_these, same_op, stacked, wrap
from vectorizer.converters.folding import reshape_to, sizes
from vectorizer.converters.stacking import spread

__all__ = ["CONVERTERS"]


def _leading(pfor_input: Any) -> Any:
    outputs = same_op(pfor_input, [stacked(value, pfor_input) for value in pfor_input.inputs])
    return [wrap(output, stacked=True) for output in outputs]


def _decomposed(pfor_input: Any) -> Any:
    """Decompose; where vectors are not asked for, TensorFlow gives an empty tensor, the same for all rows."""
    outputs = same_op(pfor_input, [pfor_input.stacked_input(0)])
    computes = {"Eig": "compute_v", "SelfAdjointEigV2": "compute_v", "Svd": "compute_uv"}[pfor_input.op_type]
    first, *vectors = outputs
    return [wrap(first, stacked=True), *(wrap(one, stacked=pfor_input.get_attr(computes)) for one in vectors)]


def _solve_ls(pfor_input: Any) -> Any:
    if pfor_input.input(2).is_stacked:
        not_for_these("the regularizer differs from row to row")
    matrix, rhs = (stacked(pfor_input.input(index), pfor_input) for index in (0, 1))
    return wrap(same_op(pfor_input, [matrix, rhs, pfor_input.input(2).t])[0], stacked=True)


def _product(pfor_input: Any) -> Any:
    """Multiply matrices whose leading dimensions broadcast: a stacked one gets as many as the other has."""
    ranks = [given.shape.rank for given in pfor_input.op.inputs]
    if None in ranks:
        not_for_these("the number of dimensions is not known")
    operands = [
        spread(value, rank=rank, to_rank=max(ranks)) for value, rank in zip(pfor_input.inputs, ranks, strict=True)
    ]
    return wrap(same_op(pfor_input, operands)[0], stacked=True)


def _diagonal(pfor_input: Any) -> Any:
    """Put the elements of a tensor [*s] on the diagonal of one of shape [*s, *s]."""
    value = pfor_input.stacked_input(0)
    shape = pfor_input.op.inputs[0].shape
    if not shape.is_fully_defined():
        not_for_these(f"the size of {shape} is not known")
    rows = sizes(value)[0]
    flat = tf.linalg.diag(reshape_to(value, [rows, shape.num_elements()]))
    return wrap(reshape_to(flat, [rows, *shape, *shape]), stacked=True)


def _diagonal_part(pfor_input: Any) -> Any:
    """Undo ``_diagonal``."""
    value = pfor_input.stacked_input(0)
    shape = pfor_input.op.inputs[0].shape
    if not shape.is_fully_defined():
        not_for_these(f"the size of {shape} is not known")
    rows, size = sizes(value)[0], shape[: shape.rank // 2]
    flat = tf.linalg.diag_part(reshape_to(value, [rows, size.num_elements(), size.num_elements()]))
    return wrap(reshape_to(flat, [rows, *size]), stacked=True)


CONVERTERS: dict[str, Converter] = {
    "BandedTriangularSolve": _leading,
    "BatchMatMulV3": _product,
    "CholeskyGrad": _leading,
    "Diag": _diagonal,
    "DiagPart": _diagonal_part,
    "Eig": _decomposed,
    "Lu": _leading,
    "MatrixDeterminant": _leading,
    "MatrixLogarithm": _leading,
    "MatrixSolveLs": _solve_ls,
    "MatrixSquareRoot": _leading,
    "Qr": _leading,
    "SelfAdjointEigV2": _decomposed,
    "Svd": _decomposed,
    "TridiagonalMatMul": _leading,
    "TridiagonalSolve": _leading,
}
