"""Writes answers of TensorFlow Serving's REST form.

orjson writes NumPy arrays in place, float32 and float64 as the shortest decimals that read back. Beside it stand
the values that it doesn't write as this format wants: NaN and infinities (it writes null), half precision (it
writes more digits than needed), strings, and arrays that are not contiguous.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from server.protocol.dtypes import shortest_doubles
from server.protocol.rows import Array, Column
from server.signature import ModelSignature

__all__ = ["NATIVE", "encode_predict", "float_tokens", "json_strings"]

#: Type characters of the dtypes that orjson writes in place and as briefly as can be: bool, integers, float32, float64.
NATIVE = frozenset("?bBhHiIlLqQfd")


def encode_predict(outputs: Sequence[Column], signature: ModelSignature, *, row_form: bool) -> bytes:
    """Write ``{"predictions": ...}`` (row form) or ``{"outputs": ...}`` (column form).

    Shapes: ``outputs`` follows ``signature.outputs``: arrays ``[n, ...]``, or lists of ``n`` arrays. The name of a
        single output is left out.
    Values: strings are text; those of outputs named ``*_bytes``, and all that are not UTF-8, are ``{"b64": ...}``.
    """
    columns = [_ready(column, tensor.name) for column, tensor in zip(outputs, signature.outputs, strict=True)]
    body = _dump(columns, signature, row_form)
    if b"null" in body:  # A value that is not finite, or a string that says so.
        body = _dump([_with_tokens(column) for column in columns], signature, row_form)
    return body


def _dump(columns: Sequence[Any], signature: ModelSignature, row_form: bool) -> bytes:  # noqa: FBT001
    if len(columns) == 1:
        answer = columns[0]
    else:
        names = [tensor.name for tensor in signature.outputs]
        if row_form:
            answer = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        else:
            answer = dict(zip(names, columns, strict=True))
    return orjson.dumps({"predictions" if row_form else "outputs": answer}, option=orjson.OPT_SERIALIZE_NUMPY)


def _ready(column: Column, name: str) -> Any:
    """Return a column as orjson takes it: an array where possible, else lists."""
    if isinstance(column, list):
        return [_ready(row, name) for row in column]
    kind = column.dtype.char
    if kind in NATIVE and column.dtype.isnative and column.ndim:
        return column if column.flags.c_contiguous else np.ascontiguousarray(column)
    if kind in "OSU":
        return json_strings(column.tolist(), in_base64=name.endswith("_bytes"))
    halves = shortest_doubles(column)
    if halves is not None:
        return halves if halves.ndim else halves[()]
    native = column.astype(column.dtype.newbyteorder("="), order="C")
    return native if native.ndim else native[()]


def json_strings(value: Any, *, in_base64: bool) -> Any:
    """Return byte strings, nested as they are, as JSON has them: text, or objects with ``b64``."""
    if isinstance(value, list):
        return [json_strings(inner, in_base64=in_base64) for inner in value]
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    if not in_base64:
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            pass  # JSON has no other form for these bytes.
    return {"b64": base64.b64encode(value).decode("ascii")}


def _with_tokens(column: Any) -> Any:
    """Return a column whose float rows are finished text, NaN and infinities as their tokens."""
    if isinstance(column, np.ndarray) and column.dtype.kind != "f":
        return column
    return [orjson.Fragment(float_tokens(row)) if isinstance(row, np.ndarray | np.floating) else row for row in column]


def float_tokens(row: Array | np.floating[Any]) -> bytes:
    """Write floats of any shape, NaN and infinities as their tokens."""
    values = np.asarray(row)
    flat = values.reshape(-1)
    finite = np.isfinite(flat)
    zeroed = np.where(finite, flat, flat.dtype.type(0))
    tokens = orjson.dumps(zeroed, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
    if not flat.size:
        return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    for index in np.flatnonzero(~finite):
        value = flat[index]
        tokens[index] = b"NaN" if np.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"
    for size in reversed(values.shape):
        tokens = [b"[" + b",".join(tokens[start : start + size]) + b"]" for start in range(0, len(tokens), size)]
    return tokens[0]
