"""TensorFlow's TensorProto: its bytes to an array, and an array to its bytes.

A tensor that comes has its elements as bytes in ``tensor_content``, or as values in the field of its dtype, where the
last value stands for all that are left out. One that goes has values, as TensorFlow Serving's answers have by default:
packed floats are the same bytes either way.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np

from server.protocol.dtypes import booleans, numpy_dtype, shape_text
from server.protocol.errors import WrongDtype, WrongShape
from server.protocol.proto_wire import (
    LEN,
    VARINT,
    Fields,
    Piece,
    binary,
    fields,
    head,
    joined,
    read_numbers,
    varint,
    within,
    write_varints,
)
from server.protocol.rows import Array
from server.protocol.tfs_dtypes import DATA_TYPES, data_type_numbers

__all__ = ["read_tensor_proto", "tensor_proto_head", "values_head", "write_values"]

#: For each dtype the field of its values, and the dtype that the field has.
_VALUES = {
    "float32": (5, "float32"),
    "float64": (6, "float64"),
    "int8": (7, "int32"),
    "int16": (7, "int32"),
    "int32": (7, "int32"),
    "uint8": (7, "int32"),
    "uint16": (7, "int32"),
    "string": (8, "string"),
    "int64": (10, "int64"),
    "bool": (11, "bool"),
    "float16": (13, "float16"),
    "bfloat16": (13, "bfloat16"),
    "uint32": (16, "uint32"),
    "uint64": (17, "uint64"),
}
_FIELDS = {number for number, _ in _VALUES.values()}
#: Enough for all dimensions that NumPy has, and short names of them.
_MAX_SHAPE_BYTES = 4_096
#: What few values may stand for: a small message must not fill the memory.
_MAX_REPEATED_BYTES = 2**20

_DTYPE = 1 << 3 | VARINT
_SHAPE, _CONTENT = 2 << 3 | LEN, 4 << 3 | LEN
_DIM = 2 << 3 | LEN
_SIZE = 1 << 3 | VARINT
_UNKNOWN_RANK = 3 << 3 | VARINT


def read_tensor_proto(message: memoryview, name: str) -> Array:
    """Read input ``name``: a view of its bytes where they are all there. Errors: every ProtocolError of values."""
    number = 0
    sizes: list[int] = []
    content: Any = b""
    values: Fields = []
    for tag, value in fields(message):
        if tag == _DTYPE:
            number = value  # type: ignore[assignment]
        elif tag == _SHAPE:
            if len(value) > _MAX_SHAPE_BYTES:  # type: ignore[arg-type]
                raise WrongShape(f"input {name!r}: its shape has more dimensions than a tensor may have")
            sizes += _sizes(bytes(value), name)
        elif tag == _CONTENT:
            content = value
        else:
            values.append((tag, value))
    dtype = _dtypes().get(number)
    if dtype is None:
        raise WrongDtype(f"input {name!r}: dtype {number} is none of {', '.join(DATA_TYPES.values())}")
    shape = tuple(sizes)
    array = _from_content(content, dtype, shape, name) if content else _from_values(values, dtype, shape, name)
    try:
        return array.reshape(shape)
    except ValueError:  # no elements, and sizes or dimensions past what NumPy counts
        raise WrongShape(f"input {name!r}: no tensor has the shape {shape_text(shape)[:80]}") from None


@cache
def _dtypes() -> dict[int, str]:
    return {number: dtype for dtype, number in data_type_numbers().items()}


@lru_cache(1_024)
def _sizes(message: bytes, name: str) -> list[int]:
    sizes = []
    for tag, value in fields(memoryview(message)):
        if tag == _UNKNOWN_RANK and value:
            raise WrongShape(f"input {name!r}: its shape has an unknown rank; send all of its sizes")
        if tag == _DIM:
            size = 0
            for inner, number in fields(value):  # type: ignore[arg-type]
                if inner == _SIZE:
                    size = number  # type: ignore[assignment]
            if size >> 62:  # negative ones are huge here
                raise WrongShape(f"input {name!r}: a size in its shape is negative, or too large")
            sizes.append(size)
    return sizes


def _from_content(content: memoryview, dtype: str, shape: tuple[int, ...], name: str) -> Array:
    if dtype == "string":
        raise WrongDtype(f"input {name!r}: strings are sent in string_val, not in tensor_content")
    element = numpy_dtype(dtype)
    n_bytes = math.prod(shape) * element.itemsize
    if len(content) != n_bytes:
        raise WrongShape(
            f"input {name!r}: {DATA_TYPES[dtype]}{shape_text(shape)} takes {n_bytes} bytes, "
            f"its tensor_content has {len(content)}"
        )
    return booleans(content, f"input {name!r}") if dtype == "bool" else np.frombuffer(content, element)


def _from_values(values: Fields, dtype: str, shape: tuple[int, ...], name: str) -> Array:
    number, its_dtype = _VALUES[dtype]
    own = [field for field in values if field[0] >> 3 == number]
    if not own and any(tag >> 3 in _FIELDS for tag, _ in values):
        raise WrongDtype(f"input {name!r}: it has no values in the field of its dtype, {DATA_TYPES[dtype]}")
    array: Array
    if dtype == "string":
        strings = [bytes(value) for _, value in own if isinstance(value, memoryview)]
        array = np.empty(len(strings), object)
        array[:] = strings
    else:
        array = within(read_numbers(own, numpy_dtype(its_dtype)), dtype, name)
    n = math.prod(shape)
    if array.size == n:
        return array
    if 0 < array.size < n:
        if n * array.itemsize > _MAX_REPEATED_BYTES:
            raise WrongShape(
                f"input {name!r}: {array.size} values stand for {n}; send them all, or at most "
                f"{_MAX_REPEATED_BYTES} bytes of such"
            )
        return np.concatenate([array, np.broadcast_to(array[-1:], n - array.size)])
    raise WrongShape(f"input {name!r}: {DATA_TYPES[dtype]}{shape_text(shape)} has {n} elements, {array.size} came")


@lru_cache(1_024)
def tensor_proto_head(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the fields of a TensorProto before its values."""
    dims = b"".join(joined(2, [b"\x08" + varint(size)]) for size in shape)
    return b"\x08" + varint(data_type_numbers()[dtype]) + joined(2, [dims])


def write_values(array: Array, dtype: str) -> list[Piece]:
    """Return the field of a TensorProto that holds an output's elements. Shapes: any."""
    if dtype == "string":
        number, _ = _VALUES[dtype]
        return [piece for value in array.reshape(-1).tolist() for piece in (head(number, len(value)), value)]
    if dtype in ("float16", "bfloat16"):
        array = np.ascontiguousarray(array).view(np.uint16)
    packed = binary(array) if dtype in ("float32", "float64") else write_varints(array)
    return [values_head(dtype, len(packed)), packed] if len(packed) else []


def values_head(dtype: str, n_bytes: int) -> bytes:
    """Return what stands before the ``n_bytes`` bytes of a TensorProto's packed values."""
    number, _ = _VALUES[dtype]
    return head(number, n_bytes)
