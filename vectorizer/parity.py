"""Comparing a bucket's answers with the per-example function's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.certificate import OutputParity

__all__ = [
    "TOLERANCE",
    "Difference",
    "answer_bits",
    "compare",
    "difference",
    "summed_up",
    "tolerance_of",
    "ulp_distance",
]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How far one row's answer is from the function's: ``is_far`` if it is out of tolerance."""

    absolute: float = 0.0
    relative: float = 0.0
    ulp: int = 0
    same_bits: bool = True
    same_zeros: bool = True
    is_far: bool = False


def difference(want: np.ndarray, have: np.ndarray, *, tolerance: float) -> Difference:
    """Compare one output of one row. Not-a-number equals itself, an infinity equals itself.

    Shapes: an answer of another shape is out of tolerance.
    """
    if want.shape != have.shape:
        return Difference(absolute=np.inf, relative=np.inf, same_bits=False, is_far=True)
    if answer_bits(want) == answer_bits(have):
        return Difference()
    absolute, relative, ulp = _distance(want, have)
    return Difference(
        absolute=absolute,
        relative=relative,
        ulp=ulp,
        same_bits=False,
        same_zeros=_same_zeros(want, have),
        is_far=not relative <= tolerance,
    )


def compare(
    name: str, expected: Sequence[np.ndarray], got: Sequence[np.ndarray], *, tolerance: float
) -> tuple[OutputParity, int | None]:
    """Compare one output over the rows; return the report and the row that is furthest out of tolerance, if any.

    Shapes: ``expected[i]`` and ``got[i]`` are row i's; a row of another shape is out of tolerance.
    """
    differences = [difference(want, have, tolerance=tolerance) for want, have in zip(expected, got, strict=True)]
    far = [row for row, each in enumerate(differences) if each.is_far]
    has_ulp = all(want.dtype.kind == "f" for want in expected)
    return summed_up(name, differences, has_ulp=has_ulp), max(
        far, key=lambda row: differences[row].relative, default=None
    )


def summed_up(name: str, differences: Sequence[Difference], *, has_ulp: bool, worst: str | None = None) -> OutputParity:
    """Return the largest of the differences of one output. Infinite ones have no place in JSON: the largest number."""
    largest = float(np.finfo(np.float64).max)
    return OutputParity(
        name=name,
        max_abs=min(max((each.absolute for each in differences), default=0.0), largest),
        max_relative=min(max((each.relative for each in differences), default=0.0), largest),
        max_ulp=max((each.ulp for each in differences), default=0) if has_ulp else None,
        bitwise_equal=all(each.same_bits for each in differences),
        signed_zeros_equal=all(each.same_zeros for each in differences),
        worst=worst,
    )


def answer_bits(answer: np.ndarray) -> bytes:
    """Return an answer's bits; all that are not a number have the same."""
    if answer.dtype == object:  # byte strings
        return b"".join(b"%d:%s" % (len(text), text) for text in map(_as_bytes, answer.flat))
    nan = np.isnan(answer) if answer.dtype.kind not in "biuSU" else np.zeros(answer.shape, bool)
    if nan.any():
        answer = np.where(nan, answer.dtype.type(np.nan), answer)
    return answer.tobytes()


def _as_bytes(text: Any) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode()


def _same_zeros(want: np.ndarray, have: np.ndarray) -> bool:
    if want.dtype == object or want.dtype.kind in "biuSU":
        return True
    zeros = (want == 0) & (have == 0)
    if want.dtype.kind == "c":
        return True
    return not bool(np.any(np.signbit(want[zeros]) != np.signbit(have[zeros])))


def _distance(want: np.ndarray, have: np.ndarray) -> tuple[float, float, int]:
    if want.dtype == object or want.dtype.kind in "biuSU":
        different = bool(np.any(want != have))
        return (np.inf, np.inf, 0) if different else (0.0, 0.0, 0)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
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
