"""Who is asked, for tests of codecs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from server.protocol import Array
from server.protocol.dtypes import numpy_dtype
from server.signature import ModelSignature, TensorSignature

__all__ = ["EVERY_DTYPE", "Someone", "one_to_one", "same_bits", "values_of"]

EVERY_DTYPE = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64", "bfloat16", "string"),
)


@dataclass(frozen=True)
class Someone:
    """A version with a signature and no model."""

    signature: ModelSignature
    name: str = "m"
    version: int = 3


def one_to_one(dtype: str, shape: tuple[int, ...] = (2,)) -> Someone:
    """A model of one input ``x`` and one output ``y`` of the same dtype and shape."""
    return Someone(
        ModelSignature(
            inputs=(TensorSignature(name="x", dtype=dtype, shape=shape),),
            outputs=(TensorSignature(name="y", dtype=dtype, shape=shape),),
        )
    )


def values_of(dtype: str) -> Array:
    """Two examples of two elements each, at the edges of the dtype."""
    wanted = numpy_dtype(dtype)
    if dtype == "string":
        return np.array([[b"", b"a\0b"], ["\u00e9".encode(), b"\xff\xfe"]], object)
    if wanted.kind in "iu":
        limits = np.iinfo(wanted)
        return np.array([[limits.min, limits.max], [0, 100]], wanted)
    if wanted.kind == "b":
        return np.array([[True, False], [False, True]])
    return np.array([[np.nan, -np.inf], [-0.0, 1.5]]).astype(wanted)


def same_bits(got: Array, expected: Array) -> bool:
    """True if dtype, shape and every bit agree."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return False
    return got.tolist() == expected.tolist() if got.dtype == object else got.tobytes() == expected.tobytes()
