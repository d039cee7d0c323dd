"""Matrices of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.vectorizer.converters.loopless import check_loopless, check_refuses_alike, refused_ops
from tests.vectorizer.oracle import spec
from vectorizer import vectorize

RNG = np.random.default_rng(8)
SQUARE = RNG.normal(size=(8, 3, 3)).astype(np.float32)
TALL = RNG.normal(size=(8, 2, 4, 3)).astype(np.float32)
#: Far from singular, with eigenvalues far apart, whatever the numbers in it are.
OWN = tf.constant([[9.0, 0.0, 0.0], [0.0, 6.0, 0.0], [0.0, 0.0, 3.0]])


def tame(x: Any) -> tf.Tensor:
    return tf.cast(OWN, x.dtype) + tf.tanh(x) / 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_determinants_decompositions_and_functions(dtype: Any) -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        a = tame(x)
        q, r = tf.linalg.qr(a)
        full_q, _ = tf.linalg.qr(a[:, :2], full_matrices=True)
        lower_upper, order = tf.linalg.lu(a)
        return {
            "det": tf.linalg.det(a),
            "logdet": tf.linalg.slogdet(a).log_abs_determinant,
            "product": q @ r,
            "full": full_q @ tf.linalg.adjoint(full_q),
            "lu": lower_upper,
            "order": order,
            "root": tf.linalg.sqrtm(a),
            "inverse": tf.linalg.inv(a),
        }

    x = SQUARE.astype(dtype)
    check_loopless(predict, {"x": x}, rtol=1e-4)


def test_eigenvalues_and_singular_values_with_vectors_and_without() -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        a = tame(x)
        symmetric = a + tf.transpose(a)
        values, vectors = tf.linalg.eigh(symmetric)
        s, u, v = tf.linalg.svd(a[:2], full_matrices=True)
        general, general_vectors = tf.linalg.eig(a)
        by_size = tf.argsort(tf.math.real(general))
        return {
            "eigh": values,
            "eigvalsh": tf.linalg.eigvalsh(symmetric),
            "of_vectors": vectors @ tf.linalg.diag(values) @ tf.transpose(vectors),
            "svd": s,
            "of_svd": u @ tf.linalg.diag(s) @ tf.transpose(v)[:2],
            "values_alone": tf.linalg.svd(a, compute_uv=False),
            "eig": tf.math.real(tf.gather(general, by_size)),
            "residual": tf.abs(tf.cast(a, tf.complex64) @ general_vectors - general_vectors * general),
            "eigvals": tf.sort(tf.math.real(tf.linalg.eigvals(a))),
            "log": tf.math.real(tf.linalg.logm(tf.cast(symmetric, tf.complex64))),
        }

    check_loopless(predict, {"x": SQUARE}, rtol=1e-4)


def test_exponential_of_a_matrix() -> None:
    check_loopless(lambda x: tf.linalg.expm(tf.tanh(x)), {"x": SQUARE}, rtol=1e-4, buckets=(2,))


@pytest.mark.parametrize("fast", [True, False])
def test_least_squares(*, fast: bool) -> None:
    matrix, rhs = TALL, RNG.normal(size=(8, 2, 4, 1)).astype(np.float32)

    def solve(a: Any, b: Any) -> tf.Tensor:
        a = tf.concat([tf.cast(OWN, tf.float32)[tf.newaxis] + tf.zeros([2, 1, 1]), tf.tanh(a)], axis=1)
        b = tf.concat([tf.tanh(b), b[:, :3]], axis=1)
        return tf.linalg.lstsq(a, b, l2_regularizer=0.5 if fast else 0.0, fast=fast)

    check_loopless(solve, {"a": matrix, "b": rhs}, rtol=1e-4)
    check_loopless(lambda b: solve(tf.constant(matrix[0]), b), {"b": rhs}, rtol=1e-4, buckets=(2,))
    check_loopless(lambda a: solve(a, tf.constant(rhs[0])), {"a": matrix}, rtol=1e-4, buckets=(2,))


def test_solvers_of_bands() -> None:
    def predict(d: tf.Tensor, b: tf.Tensor) -> dict[str, tf.Tensor]:
        d = tf.tanh(d) + tf.constant([[0.0], [5.0], [0.0]])
        shared = tf.constant([[0.5, 0.5, 0.0], [5.0, 6.0, 7.0], [0.0, 0.5, 0.5]])
        return {
            "solved": tf.linalg.tridiagonal_solve(d, b),
            "shared_diagonals": tf.linalg.tridiagonal_solve(shared, b),
            "shared_rhs": tf.linalg.tridiagonal_solve(d, tf.constant([1.0, 2.0, 3.0])),
            "product": tf.linalg.tridiagonal_matmul(d, b),
            "banded": tf.linalg.banded_triangular_solve(d[::-1][1:], b),
        }

    check_loopless(predict, {"d": SQUARE, "b": RNG.normal(size=(8, 3, 2)).astype(np.float32)}, rtol=1e-4)


def test_products_of_numbers_that_widen_broadcast_like_others() -> None:
    a = RNG.integers(-9, 9, size=(8, 2, 3, 4)).astype(np.int8)
    b = RNG.integers(-9, 9, size=(8, 4, 2)).astype(np.int8)

    def product(a: Any, b: Any) -> list[tf.Tensor]:
        return [
            tf.raw_ops.BatchMatMulV3(x=a, y=b, Tout=tf.int32),
            tf.raw_ops.BatchMatMulV3(x=b, y=a, Tout=tf.int32, adj_x=True, adj_y=True),
        ]

    check_loopless(product, {"a": a, "b": b})
    check_loopless(lambda a: product(a, tf.constant(b[0])), {"a": a}, buckets=(1, 7))
    check_loopless(lambda b: product(tf.constant(a[0]), b), {"b": b}, buckets=(1, 7))


def test_diagonals_of_any_rank() -> None:
    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        cube = tf.linalg.tensor_diag(x)
        return {
            "matrix": tf.linalg.tensor_diag(x[0]),
            "cube": cube,
            "back": tf.linalg.tensor_diag_part(cube * 2),
            "part": tf.linalg.tensor_diag_part(x),
            "scattered": tf.linalg.diag(x, k=(-1, 1), padding_value=7),
            "bands": tf.linalg.diag_part(x, k=(-1, 1), align="LEFT_RIGHT"),
        }

    check_loopless(predict, {"x": RNG.integers(0, 9, size=(8, 3, 3)).astype(np.int32)})


def test_sums_by_equation_of_shared_and_own_operands() -> None:
    shared = tf.constant(SQUARE[0])

    def predict(x: tf.Tensor, t: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            "own": tf.einsum("ij,bkj->bik", x, t),
            "shared": tf.einsum("...kj,ij->...ki", t, shared),
            "shared_first": tf.einsum("ij,jk", shared, x),
            "trace": tf.einsum("ii->", x),
            "outer": tf.einsum("i,jk->ijk", x[0], shared),
            "cross": tf.linalg.cross(x, shared),
        }

    check_loopless(predict, {"x": SQUARE, "t": TALL}, rtol=1e-4)


def test_singular_matrix_fails_in_its_row_as_in_the_function() -> None:
    def predict(x: tf.Tensor) -> tf.Tensor:
        return tf.linalg.lu(x).lu

    values = np.stack([np.eye(2), [[2, 1], [0, 1]], [[1, 1], [1, 1]]]).astype(np.float32)
    vectorized = vectorize(predict, inputs={"x": spec(2, 2)}, buckets=(4,), examples=[{"x": values[0]}])
    check_refuses_alike(predict, vectorized, {"x": values}, first_bad=2)


def test_regularizer_of_each_row_is_refused_by_name() -> None:
    def predict(x: tf.Tensor, r: tf.Tensor) -> tf.Tensor:
        return tf.raw_ops.MatrixSolveLs(matrix=x, rhs=x, l2_regularizer=r)

    assert "the regularizer" in refused_ops(predict, x=spec(3, 3), r=spec(dtype=tf.float64))["MatrixSolveLs"]


def test_column_times_a_row_of_which_one_is_shared_changes_no_places() -> None:
    column = tf.constant(RNG.normal(size=(1, 3)).astype(np.float32))
    vectorized = check_loopless(
        lambda x: (tf.matmul(column, x[None], transpose_a=True), tf.matmul(x[:, None], column)),
        {"x": RNG.normal(size=(3, 4)).astype(np.float32)},
        buckets=(1, 3),
    )
    ops = [op.type for graph in vectorized.graphs.values() for op in graph.graph.get_operations()]
    assert "Transpose" not in ops
    assert "BatchMatMulV2" in ops
