"""A matrix that is the same for all rows times a vector of each row: ONE matrix product.

A per-example function multiplies a matrix with a vector, and so ``MatMul`` sees a stacked operand with a dimension
of 1. pfor transposes around the product for ``W @ x``, about twice as slow as ``x @ W`` at 64 rows. Rows of
length-1 operands fold into the product's own row dimension instead; other shapes go the way they went.

A column times a row, which is the gradient by a matrix, has an element for each pair. Where only one of the two
differs from row to row, pfor makes one product of all rows, whose elements then change places: in a Jacobian by a
matrix (32 elements, 32 x 32, 128 rows) that takes 20 ms, and a product for each row 6 ms.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from vectorizer._pfor import Converter, stock_registry, wrap
from vectorizer.converters.shapes import reshaped

__all__ = ["CONVERTERS"]


def _mat_mul(pfor_input: Any) -> Any:
    a, a_stacked, _ = pfor_input.input(0)
    b, b_stacked, _ = pfor_input.input(1)
    transpose_a = pfor_input.get_attr("transpose_a")
    transpose_b = pfor_input.get_attr("transpose_b")
    if a_stacked and not b_stacked and a.shape.is_fully_defined():
        rows, n, k = (a.shape[0], a.shape[2], a.shape[1]) if transpose_a else a.shape
        if n == 1:
            product = tf.matmul(reshaped(a, [rows, k]), b, transpose_b=transpose_b)
            return wrap(tf.expand_dims(product, 1), stacked=True)
    if b_stacked and not a_stacked and b.shape.is_fully_defined():
        rows, k, n = (b.shape[0], b.shape[2], b.shape[1]) if transpose_b else b.shape
        if n == 1:
            # (a @ b)^T = b^T @ a^T, and the transposes of vectors cost nothing.
            product = tf.matmul(reshaped(b, [rows, k]), a, transpose_b=not transpose_a)
            return wrap(tf.expand_dims(product, 2), stacked=True)
    if a_stacked != b_stacked and pfor_input.op.inputs[0].shape[0 if transpose_a else 1] == 1:
        product = tf.matmul(
            a if a_stacked else a[tf.newaxis],
            b if b_stacked else b[tf.newaxis],
            transpose_a=transpose_a,
            transpose_b=transpose_b,
        )
        return wrap(product, stacked=True)
    return stock_registry()["MatMul"](pfor_input)


CONVERTERS: dict[str, Converter] = {"MatMul": _mat_mul}
