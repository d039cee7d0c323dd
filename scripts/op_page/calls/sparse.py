"""Sparse and ragged tensors in parts: values are each example's own, the places of the values are shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from scripts.op_page.call import Call, Each, call, ints, reals

__all__ = ["CALLS", "VARIANTS"]

_PLACES = np.int64([[0, 0], [1, 2]])
_VALUES = reals(2)
_SHAPE = np.int64([2, 3])
_SPARSE = (_PLACES, _VALUES, _SHAPE)
_COUNTS = (_PLACES, ints(2, below=3), _SHAPE)
_SPLITS = np.int64([0, 2, 3])
_NO_WEIGHTS = np.zeros([0], np.float32)


def _same(names: str, make: Callable[[str], Call]) -> dict[str, Callable[[str], Call]]:
    return dict.fromkeys(names.split(), make)


def _csr(of: Callable[..., Any]) -> Callable[[str], Call]:
    """A call on a compressed sparse matrix, made of each example's values."""

    def build(dense: tf.Tensor) -> Any:
        matrix = tf.raw_ops.DenseToCSRSparseMatrix(dense_input=dense, indices=tf.constant(_PLACES))
        result = of(matrix)
        if isinstance(result, tf.Tensor) and result.dtype == tf.variant:
            return tf.raw_ops.CSRSparseMatrixToDense(sparse_input=result, type=tf.float32)
        return result

    return call(reals(3, 3), build=build)


_RAW = tf.raw_ops

CALLS: dict[str, Callable[[str], Call]] = {
    **_same("SparseDenseCwiseAdd SparseDenseCwiseDiv SparseDenseCwiseMul", call(*_SPARSE, reals(2, 3))),
    **_same("SparseReduceMax SparseReduceMaxSparse SparseReduceSum SparseReduceSumSparse", call(*_SPARSE, 1)),
    **_same("SparseSparseMaximum SparseSparseMinimum", call(*_SPARSE, *_SPARSE)),
    **_same("DeserializeManySparse", call(Each(np.full([2, 3], b"", object), tf.string), dtype=tf.float32)),
    **_same("DeserializeSparse", call(Each(np.full([3], b"", object), tf.string), dtype=tf.float32)),
    **_same("SerializeManySparse SerializeSparse", call(*_SPARSE)),
    "CSRSparseMatrixComponents": _csr(
        lambda m: _RAW.CSRSparseMatrixComponents(csr_sparse_matrix=m, index=0, type=tf.float32)
    ),
    "CSRSparseMatrixToDense": _csr(lambda m: _RAW.CSRSparseMatrixToDense(sparse_input=m, type=tf.float32)),
    "CSRSparseMatrixToSparseTensor": _csr(
        lambda m: _RAW.CSRSparseMatrixToSparseTensor(sparse_matrix=m, type=tf.float32)
    ),
    "DenseCountSparseOutput": call(ints(4), _NO_WEIGHTS, binary_output=False),
    "DenseToCSRSparseMatrix": _csr(lambda m: m),
    "DenseToDenseSetOperation": call(ints(2, 3), ints(2, 3), set_operation="union"),
    "DenseToSparseSetOperation": call(ints(2, 3), *_COUNTS, set_operation="union"),
    "RaggedBincount": call(_SPLITS, ints(3), 5, _NO_WEIGHTS),
    "RaggedCountSparseOutput": call(_SPLITS, ints(3), _NO_WEIGHTS, binary_output=False),
    "RaggedCross": call(
        [ints(3, dtype=np.int64)],
        [_SPLITS],
        [],
        [],
        [],
        [],
        input_order="R",
        hashed_output=True,
        num_buckets=7,
        hash_key=1,
        out_values_type=tf.int64,
        out_row_splits_type=tf.int64,
    ),
    "RaggedFillEmptyRows": call(np.int64([0, 2]), _VALUES, np.int64(3), 0.0),
    "RaggedFillEmptyRowsGrad": call(np.int64([0, 1]), reals(3)),
    "RaggedGather": call([_SPLITS], reals(3), ints(2, below=2), OUTPUT_RAGGED_RANK=1),
    "RaggedRange": call(np.int32([0, 1]), ints(2), np.int32([1, 1])),
    "RaggedTensorFromVariant": call(
        reals(3),
        build=lambda v: _RAW.RaggedTensorFromVariant(
            encoded_ragged=_RAW.RaggedTensorToVariant(
                rt_nested_splits=[tf.constant(_SPLITS)], rt_dense_values=v, batched_input=False
            ),
            input_ragged_rank=1,
            output_ragged_rank=1,
            Tvalues=tf.float32,
        ),
    ),
    "RaggedTensorToSparse": call([_SPLITS], reals(3)),
    "RaggedTensorToTensor": call(np.int64([2, 2]), reals(3), 0.0, [_SPLITS], row_partition_types=["ROW_SPLITS"]),
    "RaggedTensorToVariant": call([_SPLITS], reals(3), batched_input=False),
    "RaggedTensorToVariantGradient": call(
        reals(3),
        build=lambda v: _RAW.RaggedTensorToVariantGradient(
            encoded_ragged_grad=_RAW.RaggedTensorToVariant(
                rt_nested_splits=[tf.constant(_SPLITS)], rt_dense_values=v, batched_input=False
            ),
            row_splits=tf.constant(_SPLITS),
            dense_values_shape=[3],
            Tvalues=tf.float32,
        ),
    ),
    "SparseAdd": call(*_SPARSE, *_SPARSE, 0.0),
    "SparseAddGrad": call(reals(2), _PLACES, _PLACES, _PLACES),
    "SparseBincount": call(*_COUNTS, 5, _NO_WEIGHTS),
    "SparseConcat": call([_PLACES, _PLACES], [_VALUES, _VALUES], [_SHAPE, _SHAPE], concat_dim=0),
    "SparseCountSparseOutput": call(*_COUNTS, _NO_WEIGHTS, binary_output=False),
    "SparseCross": call(
        [],
        [],
        [],
        [ints(2, 1, dtype=np.int64)],
        hashed_output=True,
        num_buckets=7,
        hash_key=1,
        out_type=tf.int64,
        internal_type=tf.int64,
    ),
    "SparseCrossHashed": call([], [], [], [ints(2, 1, dtype=np.int64)], np.int64(7), False, np.int64([1, 2])),
    "SparseCrossV2": call([], [], [], [Each(np.array([["a"], ["b"]], object), tf.string)], np.array(b"_", object)),
    "SparseFillEmptyRows": call(*_SPARSE, 0.0),
    "SparseFillEmptyRowsGrad": call(np.int64([0, 1]), reals(3)),
    "SparseMatrixAdd": _csr(lambda m: _RAW.SparseMatrixAdd(a=m, b=m, alpha=1.0, beta=1.0)),
    "SparseMatrixMatMul": _csr(lambda m: _RAW.SparseMatrixMatMul(a=m, b=tf.ones([3, 2]))),
    "SparseMatrixMul": _csr(lambda m: _RAW.SparseMatrixMul(a=m, b=tf.constant(2.0))),
    "SparseMatrixNNZ": _csr(lambda m: _RAW.SparseMatrixNNZ(sparse_matrix=m)),
    "SparseMatrixOrderingAMD": _csr(lambda m: _RAW.SparseMatrixOrderingAMD(input=m)),
    "SparseMatrixSoftmax": _csr(lambda m: _RAW.SparseMatrixSoftmax(logits=m, type=tf.float32)),
    "SparseMatrixSoftmaxGrad": _csr(lambda m: _RAW.SparseMatrixSoftmaxGrad(softmax=m, grad_softmax=m, type=tf.float32)),
    "SparseMatrixSparseCholesky": _csr(
        lambda m: _RAW.SparseMatrixSparseCholesky(input=m, permutation=tf.constant([0, 1, 2]), type=tf.float32)
    ),
    "SparseMatrixSparseMatMul": _csr(lambda m: _RAW.SparseMatrixSparseMatMul(a=m, b=m, type=tf.float32)),
    "SparseMatrixTranspose": _csr(lambda m: _RAW.SparseMatrixTranspose(input=m, type=tf.float32)),
    "SparseMatrixZeros": call(np.int64([3, 3]), type=tf.float32),
    "SparseReorder": call(*_SPARSE),
    "SparseReshape": call(Each(_PLACES), _SHAPE, np.int64([3, 2])),
    "SparseSlice": call(*_SPARSE, np.int64([0, 0]), np.int64([1, 2])),
    "SparseSliceGrad": call(reals(1), _PLACES, np.int64([0, 0]), np.int64([[0, 0]])),
    "SparseSoftmax": call(*_SPARSE),
    "SparseSplit": call(np.int64(0), *_SPARSE, num_split=2),
    "SparseTensorDenseAdd": call(*_SPARSE, reals(2, 3)),
    "SparseTensorDenseMatMul": call(*_SPARSE, reals(3, 2)),
    "SparseTensorToCSRSparseMatrix": call(*_SPARSE),
    "SparseToDense": call(_PLACES, _SHAPE, _VALUES, 0.0),
    "SparseToSparseSetOperation": call(*_COUNTS, *_COUNTS, set_operation="union"),
}

VARIANTS: dict[str, dict[str, Callable[[str], Call]]] = {}
