"""Which ops do work enough that it matters on how many rows they run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

__all__ = ["is_costly"]

_COSTLY = frozenset(
    [
        "BatchMatMul",
        "BatchMatMulV2",
        "BatchMatMulV3",
        "Cholesky",
        "Conv2D",
        "Conv3D",
        "DepthwiseConv2dNative",
        "Einsum",
        "FFT",
        "IFFT",
        "IRFFT",
        "MatMul",
        "MatrixInverse",
        "MatrixSolve",
        "MatrixTriangularSolve",
        "RFFT",
        "StatelessWhile",
        "Svd",
        "While",
    ]
)


def is_costly(conversions: Collection[Any]) -> bool:
    """Return True if an op among the conversions is."""
    return any(entry.op.type in _COSTLY for entry in conversions)
