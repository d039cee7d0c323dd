"""Datatypes of the Open Inference Protocol, by our dtype names and back."""

from __future__ import annotations

__all__ = ["DATATYPES", "DTYPES", "ONLY_BINARY", "datatype_of"]

#: Source: the protocol's table of tensor data types, and BF16 of its binary tensor data extension.
DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    "string": "BYTES",
}
DTYPES = {datatype: dtype for dtype, datatype in DATATYPES.items()}


def datatype_of(dtype: str) -> str:
    """Return the protocol's name of a dtype; ours in capitals for what it has no name for."""
    return DATATYPES.get(dtype, dtype.upper())


#: Those that have no form in JSON.
ONLY_BINARY = frozenset({"FP16", "BF16"})
