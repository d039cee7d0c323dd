"""Comparing a bucket's answers with the per-example function's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.certificate import OutputParity

__all__ = ["TOLERANCE", "compare", "tolerance_of", "ulp_distance"]

#: Largest difference that is accepted, relative to the largest magnitude in the row: batched kernels sum in another
#: order, so that the error of an element is that of the sum it is in. About 1,000 units in the last place of
#: float32, and the same share of the others' precision; everything that is no float must be equal.
TOLERANCE = {
    "bfloat16": 6e-2,
    "float16": 1e-2,
    "float32": 1e-4,
    "float64": 1e-10,
    "complex64": 1e-4,
    "complex128": 1e-10,
}
#: Rows of small numbers are compared absolutely, as if their largest were this.
_SMALL = 1e-1
_BITS: dict[int, Any] = {2: np.int16, 4: np.int32, 8: np.int64}


def tolerance_of(dtype: tf.DType, override: float | None) -> float:
    """Return the tolerance for a dtype; 0 where answers must be equal."""
    default = TOLERANCE.get(dtype.name, 0.0)
    return override if override is not None and default else default


def compare(
    name: str, expected: Sequence[np.ndarray], got: Sequence[np.ndarray], *, tolerance: float
) -> tuple[OutputParity, int | None]:
    """Compare one output over the rows; return the report and the first row that is out of tolerance, if any.

    Shapes: ``expected[i]`` and ``got[i]`` are row i's; a row of another shape is out of tolerance.
    Not-a-number equals itself, an infinity equals itself.
    """
    max_abs = max_relative = 0.0
    max_ulp = 0
    bitwise = True
    first_bad = None
    for row, (want, have) in enumerate(zip(expected, got, strict=True)):
        if want.shape != have.shape:
            return OutputParity(
                name=name, max_abs=0.0, max_relative=0.0, max_ulp=None, bitwise_equal=False
            ), row if first_bad is None else first_bad
        if _same_bits(want, have):
            continue
        bitwise = False
        absolute, relative, ulp = _distance(want, have)
        if not (relative <= tolerance) and first_bad is None:
            first_bad = row
        max_abs, max_relative, max_ulp = max(max_abs, absolute), max(max_relative, relative), max(max_ulp, ulp)
    has_ulp = all(want.dtype.kind == "f" for want in expected)
    report = OutputParity(
        name=name,
        max_abs=min(max_abs, np.finfo(np.float64).max),
        max_relative=min(max_relative, np.finfo(np.float64).max),
        max_ulp=max_ulp if has_ulp else None,
        bitwise_equal=bitwise,
    )
    return report, first_bad


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype == object:  # byte strings
        return bool(np.all(a == b))
    return a.tobytes() == b.tobytes()


def _distance(want: np.ndarray, have: np.ndarray) -> tuple[float, float, int]:
    if want.dtype == object or want.dtype.kind in "biuSU":
        different = bool(np.any(want != have))
        return (np.inf, np.inf, 0) if different else (0.0, 0.0, 0)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    a, b = want.astype(wide), have.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if bool(np.any((~np.isfinite(a) | ~np.isfinite(b)) & ~same)):
        return np.inf, np.inf, np.iinfo(np.int64).max
    finite = ~same
    if not finite.any():
        return 0.0, 0.0, ulp_distance(want, have)
    absolute = float(np.max(np.abs(a[finite] - b[finite])))
    scale = max(float(np.max(np.abs(a), where=np.isfinite(a), initial=0.0)), _SMALL)
    return absolute, absolute / scale, ulp_distance(want, have)


def ulp_distance(a: np.ndarray, b: np.ndarray) -> int:
    """Return how many representable numbers lie between the two arrays at most; 0 for dtypes without such steps."""
    if a.dtype.kind != "f" or a.dtype.itemsize not in _BITS or a.size == 0:
        return 0
    finite = np.isfinite(a) & np.isfinite(b)
    if not finite.any():
        return 0
    integer = _BITS[a.dtype.itemsize]

    def ordered(x: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(x[finite]).view(integer)
        # Negative numbers are mirrored, so that -0 and +0 are the same point. The distance of two 64-bit numbers
        # of different sign does not fit 64 bits.
        mirrored: np.ndarray = np.where(bits < 0, np.iinfo(integer).min - bits, bits)
        return mirrored.astype(object if integer is np.int64 else np.int64)

    return int(np.max(np.abs(ordered(a) - ordered(b))))
