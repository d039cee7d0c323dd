"""TensorFlow's names and numbers of dtypes, by ours."""

from __future__ import annotations

from functools import cache

from server.protocol.messages import enum_number

__all__ = ["DATA_TYPES", "data_type_numbers"]

#: Names of tensorflow/core/framework/types.proto.
DATA_TYPES = {
    "bool": "DT_BOOL",
    "uint8": "DT_UINT8",
    "uint16": "DT_UINT16",
    "uint32": "DT_UINT32",
    "uint64": "DT_UINT64",
    "int8": "DT_INT8",
    "int16": "DT_INT16",
    "int32": "DT_INT32",
    "int64": "DT_INT64",
    "float16": "DT_HALF",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "bfloat16": "DT_BFLOAT16",
    "string": "DT_STRING",
}


@cache
def data_type_numbers() -> dict[str, int]:
    """Return the enum's numbers by our names."""
    return {dtype: enum_number("tensorflow.DataType", name) for dtype, name in DATA_TYPES.items()}
