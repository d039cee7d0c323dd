"""Values of examples to JSON and back, bit for bit.

Floats travel as the shortest decimal of their 64-bit value: the decimal of a 32-bit float that is shortest
among 32-bit floats can land on its neighbour when a reader rounds it first to 64 bits and then to 32.
Byte strings travel as ``{"b64": ...}``; NaN and infinities as the tokens ``NaN``, ``Infinity``, ``-Infinity``.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import orjson

from rowwise.errors import BadAnswer, WrongInputs

__all__ = ["decode_json", "encode_json", "from_wire", "shortest", "to_wire"]


def to_wire(value: Any, *, where: str) -> Any:
    """Return ``value`` as JSON types and NumPy arrays that ``encode_json`` takes.

    Takes numbers, strings, bytes, arrays, tensors, and lists and tuples of these.
    Errors: WrongInputs, naming ``where``.
    """
    if isinstance(value, (bool, int, float, str)) and not isinstance(value, np.generic):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"b64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, (list, tuple)):
        return [to_wire(entry, where=where) for entry in value]
    if value is None or isinstance(value, (dict, set)):
        raise WrongInputs(f"{where}: expected a number, string, bytes or array, got {type(value).__name__}")
    return _array_to_wire(np.asarray(value), where=where)


def _array_to_wire(array: np.ndarray[Any, Any], *, where: str) -> Any:
    kind = array.dtype.kind
    if kind == "f":
        array = array.astype(np.float64)
    elif array.dtype.name in {"bfloat16", "float8_e4m3fn", "float8_e5m2"}:  # kind V, from another package
        array = array.astype(np.float32).astype(np.float64)
    elif kind in "OSU":
        if array.ndim == 0 and not isinstance(array.item(), (bytes, str, bool, int, float)):
            raise WrongInputs(f"{where}: expected a number, string, bytes or array, got {type(array.item()).__name__}")
        return to_wire(array.tolist(), where=where)
    elif kind not in "biu":
        raise WrongInputs(f"{where}: arrays of dtype {array.dtype} can't be sent; convert it to numbers or strings")
    if array.ndim == 0:
        return array.item()
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def shortest(value: np.ndarray[Any, Any] | np.generic) -> Any:
    """Return numbers so that ``encode_json`` writes them in the shortest form of their own precision."""
    if value.ndim:
        return np.asarray(value)
    # A scalar would be widened to 64 bits first, and print the digits that this adds.
    return float(str(value)) if value.dtype.kind == "f" else value.item()


def encode_json(value: Any) -> bytes:
    """Encode JSON types and NumPy arrays. Errors: WrongInputs for what JSON can't hold."""
    try:
        if _is_finite(value):
            return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        pass  # integers over 64 bits and keys that aren't strings: the exact path decides
    try:
        return json.dumps(value, default=_array_as_list, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise WrongInputs(f"this can't be sent as JSON: {error}") from error


def _is_finite(value: Any) -> bool:
    """Return False if ``value`` holds a float that only the tokens of the exact path can name."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind != "f" or bool(np.isfinite(value).all())
    if isinstance(value, dict):
        return all(_is_finite(entry) for entry in value.values())
    return all(_is_finite(entry) for entry in value) if isinstance(value, (list, tuple)) else True


def _array_as_list(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


def decode_json(body: bytes) -> Any:
    """Decode JSON in which NaN and infinities may stand as tokens. Errors: ValueError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return json.loads(body)


def from_wire(value: Any, dtype: np.dtype[Any] | None, *, where: str) -> np.ndarray[Any, Any]:
    """Return one output of one example as an array of ``dtype``; None (strings) gives an array of objects.

    Errors: BadAnswer, naming ``where``.
    """
    try:
        return _strings(value) if dtype is None else _numbers(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        expected = "strings" if dtype is None else str(dtype)
        raise BadAnswer(
            f"{where}: the server announced {expected}, but the answer holds something else: {error}"
        ) from (error)


def _numbers(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    found = np.array(value)
    kind = found.dtype.kind
    fits = not found.size or kind in {"b": "b", "f": "iuf"}.get(dtype.kind, "iu")
    # Integers on both sides of 2**63 look like floats to NumPy until it is told better.
    if not fits and dtype == np.uint64:
        fits = all(type(each) is int for each in np.array(value, dtype=object).flat)
    if not fits:
        raise TypeError(f"{found.dtype} values")
    if dtype.kind in "iu":
        return np.array(value, dtype=dtype)  # from Python integers: raises where one is out of range
    return found.astype(dtype)


def _strings(value: Any) -> np.ndarray[Any, Any]:
    def plain(entry: Any) -> Any:
        if isinstance(entry, list):
            return [plain(each) for each in entry]
        if isinstance(entry, dict) and set(entry) == {"b64"}:
            return base64.b64decode(entry["b64"], validate=True)
        if isinstance(entry, str):
            return entry
        raise TypeError(f"{entry!r} is no string")

    return np.array(plain(value), dtype=object)
