"""Reductions, products, matrices, counting: ops on numbers that are no function of single elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from scripts.op_page.call import Call, Each, call, ints, reals

__all__ = ["CALLS", "VARIANTS"]

_SQUARE = Each(np.float32([[4, 1, 0], [1, 5, 2], [0, 2, 6]]))
_FLAGS = Each(np.array([[True, False, True], [True, True, True]]))
_NO_WEIGHTS = np.zeros([0], np.float32)
_REDUCED = {
    **dict.fromkeys(["Max", "Mean", "Min", "Prod", "Sum", "EuclideanNorm"], reals(2, 3)),
    **dict.fromkeys(["All", "Any"], _FLAGS),
}


def _same(names: str, make: Callable[[str], Call]) -> dict[str, Callable[[str], Call]]:
    return dict.fromkeys(names.split(), make)


CALLS: dict[str, Callable[[str], Call]] = {
    **{op: call(value, 1) for op, value in _REDUCED.items()},
    **_same("ArgMax ArgMin Cumprod Cumsum CumulativeLogsumexp", call(reals(2, 3), 1)),
    **_same("MatrixDeterminant LogMatrixDeterminant MatrixInverse Cholesky MatrixSquareRoot Lu", call(_SQUARE)),
    **_same("MatrixLogarithm", call(Each(_SQUARE.values.astype(np.complex64)))),
    **_same("SelfAdjointEigV2 Svd Qr", call(_SQUARE)),
    **_same("MatrixDiagPartV2 MatrixDiagPartV3", call(_SQUARE, 0, 0.0)),
    **_same("MatrixDiagV2 MatrixDiagV3", call(reals(3), 0, 3, 3, 0.0)),
    **_same("MatrixSetDiagV2 MatrixSetDiagV3", call(_SQUARE, reals(3), 0)),
    **_same("SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum", call(reals(4, 2), np.int32([0, 0, 1, 2]))),
    **_same("SegmentMaxV2 SegmentMinV2 SegmentProdV2 SegmentSumV2", call(reals(4, 2), np.int32([0, 0, 1, 2]), 3)),
    **_same(
        "UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum",
        call(reals(4, 2), ints(4, below=3), 3),
    ),
    **_same(
        "SparseSegmentMean SparseSegmentSqrtN SparseSegmentSum",
        call(reals(4, 2), ints(3, below=4), np.int32([0, 0, 1])),
    ),
    **_same(
        "SparseSegmentMeanWithNumSegments SparseSegmentSqrtNWithNumSegments SparseSegmentSumWithNumSegments",
        call(reals(4, 2), ints(3, below=4), np.int32([0, 0, 1]), 2),
    ),
    **_same(
        "SparseSegmentMeanGrad SparseSegmentSqrtNGrad SparseSegmentSumGrad",
        call(reals(2, 2), ints(3, below=4), np.int32([0, 0, 1]), 4),
    ),
    **_same(
        "SparseSegmentMeanGradV2 SparseSegmentSqrtNGradV2 SparseSegmentSumGradV2",
        call(reals(2, 2), ints(3, below=4), np.int32([0, 0, 1]), 4),
    ),
    "InTopK": call(reals(2, 3), ints(2, below=3), k=1),
    "InTopKV2": call(reals(2, 3), ints(2, below=3), 1),
    "AccumulateNV2": call([reals(2), reals(2)], shape=[2]),
    "BandedTriangularSolve": call(reals(2, 3), reals(3, 1)),
    "BatchMatMul": call(reals(2, 2, 3), reals(2, 3, 2)),
    "BatchMatMulV2": call(reals(2, 2, 3), reals(2, 3, 2)),
    "BatchMatMulV3": call(reals(2, 2, 3), reals(2, 3, 2), Tout=tf.float32),
    "Bincount": call(ints(4), 5, _NO_WEIGHTS),
    "Bucketize": call(reals(4), boundaries=[0.2, 0.5]),
    "CholeskyGrad": call(Each(np.linalg.cholesky(_SQUARE.values)), _SQUARE),
    "ClipByValue": call(reals(2, 3), 0.2, 0.5),
    "ComputeAccidentalHits": call(ints(3, 1, dtype=np.int64), np.array([1, 2]).astype(np.int64), num_true=1),
    "DenseBincount": call(ints(4), 5, _NO_WEIGHTS),
    "DiagPart": call(_SQUARE),
    "Eig": call(_SQUARE, Tout=tf.complex64),
    "Einsum": call([reals(2, 3), reals(3, 2)], equation="ij,jk->ik"),
    "HistogramFixedWidth": call(reals(5), np.float32([0, 1]), 4),
    "IsotonicRegression": call(reals(2, 4)),
    "KMC2ChainInitialization": call(reals(4), np.int64(3)),
    "KmeansPlusPlusInitialization": call(reals(4, 2), np.int64(2), np.int64(3), np.int64(1)),
    "LinSpace": call(reals(), reals(low=1.0), 4),
    "LowerBound": call(Each(np.float32([[1, 2, 3]])), reals(1, 2, high=4)),
    "MatMul": call(reals(2, 3), reals(3, 2)),
    "MatrixBandPart": call(_SQUARE, 1, 0),
    "MatrixDiag": call(reals(3)),
    "MatrixDiagPart": call(_SQUARE),
    "MatrixSetDiag": call(_SQUARE, reals(3)),
    "MatrixSolve": call(_SQUARE, reals(3, 1)),
    "MatrixSolveLs": call(_SQUARE, reals(3, 1), np.float64(0.5)),
    "MatrixTriangularSolve": call(_SQUARE, reals(3, 1)),
    "NearestNeighbors": call(reals(4, 2), reals(3, 2), np.int64(2)),
    "NthElement": call(reals(2, 3), 1),
    "SobolSample": call(3, 4, 0),
    "SparseMatMul": call(reals(2, 3), reals(3, 2)),
    "SetSize": call(np.int64([[0, 0], [1, 0]]), ints(2), np.int64([2, 2])),
    "TopKV2": call(reals(2, 3), 2),
    "TridiagonalMatMul": call(reals(1, 3), reals(1, 3, low=4, high=5), reals(1, 3), reals(3, 2)),
    "TridiagonalSolve": call(Each(np.float32([[1, 1, 0], [4, 5, 6], [0, 1, 1]])), reals(3, 2)),
    "UnsortedSegmentJoin": call(Each(np.array(["a", "b", "c"], object), tf.string), ints(3, below=2), 2),
    "UpperBound": call(Each(np.float32([[1, 2, 3]])), reals(1, 2, high=4)),
}

VARIANTS: dict[str, dict[str, Callable[[str], Call]]] = {
    "DenseBincount": {"weights": call(ints(4), 5, reals(4))},
    "Svd": {"without vectors": call(_SQUARE, compute_uv=False)},
    "SparseSegmentSumGrad": {"all of each example": call(reals(2, 2), ints(3, below=4), Each(np.int32([0, 0, 1])), 4)},
}
