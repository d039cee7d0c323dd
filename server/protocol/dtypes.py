"""Dtypes by name: which ones JSON can carry, how far they reach, and how their values are written in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from server.protocol.errors import WrongDtype
from server.protocol.rows import Array
from server.signature import STRING, ModelSignature, TensorSignature

__all__ = [
    "booleans",
    "describe",
    "float_limit",
    "kind_of",
    "narrow",
    "numpy_dtype",
    "shape_text",
    "shortest_doubles",
]

_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16}
_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})

#: Dtypes whose shortest decimal is not the one of a wider type that orjson prints.
_HALVES = {np.dtype(np.float16): np.float16, np.dtype(ml_dtypes.bfloat16): ml_dtypes.bfloat16}
#: For each half type: the double that prints as the shortest decimal of the value with these 16 bits; NaN: not yet
#: computed. At most 65,536 entries each.
_SHORTEST: dict[np.dtype[Any], np.ndarray[Any, np.dtype[np.float64]]] = {}


def kind_of(dtype: str) -> str:
    """Return ``float``, ``integer``, ``bool``, ``string``, or ``other`` for what JSON has no form for."""
    if dtype in _FLOATS:
        return "float"
    if dtype in _INTEGERS:
        return "integer"
    return dtype if dtype in {"bool", STRING} else "other"


@cache
def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a signature's dtype name; strings are object arrays of ``bytes``."""
    if dtype == STRING:
        return np.dtype(object)
    found: np.dtype[Any] = np.dtype(_FLOATS.get(dtype, dtype))
    return found


@cache
def float_limit(dtype: str) -> float:
    """Return the largest finite value of a floating-point dtype."""
    return float(ml_dtypes.finfo(_FLOATS[dtype]).max)  # type: ignore[no-untyped-call]


def booleans(octets: memoryview, what: str) -> Array:
    """Return bytes as the booleans that they are: a view. Shapes: [n]. Errors: WrongDtype, which calls them ``what``.

    NumPy takes other bytes for true, and then neither its arithmetic nor TensorFlow's does what one thinks.
    """
    values = np.frombuffer(octets, np.uint8)
    if values.max(initial=0) > 1:
        raise WrongDtype(f"{what}: a boolean is one byte, 0 or 1; send it so")
    return values.view(np.bool_)


def narrow(values: np.ndarray[Any, np.dtype[np.float64]], dtype: np.dtype[Any]) -> Array:
    """Round doubles to ``dtype``, to nearest, as NumPy does; what is too large becomes infinite, silently."""
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def shape_text(shape: Sequence[object]) -> str:
    """Write a shape as ``[3, 4]``."""
    return "[" + ", ".join(str(size) for size in shape) + "]"


def describe(tensor: TensorSignature, signature: ModelSignature) -> str:
    """Write dtype and shape as callers know them: ``float32[<=16, 4]``, and ``float32`` alone for a scalar."""
    if not tensor.shape:
        return tensor.dtype
    axes = signature.axis_index
    return tensor.dtype + shape_text(
        [dim if isinstance(dim, int) else f"<={signature.axes[axes[dim]].max}" for dim in tensor.shape]
    )


def shortest_doubles(values: Array) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """Return doubles that print as the shortest decimals which read back as these half-precision values.

    None where ``values`` are not float16 or bfloat16. NaN and infinities stay what they are.
    """
    half = _HALVES.get(values.dtype)
    if half is None:
        return None
    table = _SHORTEST.setdefault(values.dtype, np.full(65_536, np.nan))
    bits = np.ascontiguousarray(values).view(np.uint16)
    for index in np.unique(bits[np.isnan(table[bits])]):
        value = index.view(np.uint16).reshape(1).view(values.dtype)
        table[index] = _shortest(float(value[0]), half)
    return table[bits]


def _shortest(value: float, half: Any) -> float:
    if not np.isfinite(value):
        return value
    largest = float_limit(np.dtype(half).name)
    for digits in range(1, 17):
        decimal = float(f"{value:.{digits}g}")
        if abs(decimal) <= largest and float(half(decimal)) == value:
            return decimal
    return value
