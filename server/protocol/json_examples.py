"""From JSON values to arrays, exactly: the reference that says what is a request and what is wrong with one.

Every shortcut elsewhere in this package accepts a subset of what this module accepts and gives the same arrays;
whatever a shortcut doesn't take comes here, to be read or to be refused with a sentence.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any

import numpy as np
import orjson

from server.protocol.dtypes import describe, kind_of, narrow, numpy_dtype, shape_text
from server.protocol.errors import MalformedRequest, WrongDtype, WrongShape
from server.protocol.rows import Array
from server.signature import ModelSignature, TensorSignature

__all__ = ["ExampleReader", "json_kind", "parse_json"]

#: No model has so many dimensions (NumPy's own bound is 64): deeper nesting is not measured further.
_MAX_DIMENSIONS = 64

#: What a value of each kind may be after parsing. An integer may stand for a float, never the other way.
_JSON_TYPES: dict[str, set[type]] = {"float": {float, int}, "integer": {int}, "bool": {bool}}


def parse_json(body: bytes, *, expected: str = "a JSON object with 'instances' or 'inputs'") -> Any:
    """Parse JSON, and the tokens NaN, Infinity and -Infinity besides. ``expected`` says what an empty body lacks.

    Errors: MalformedRequest, also for numbers that no double holds and for nesting past what can be read.
    """
    try:
        return orjson.loads(body)
    except ValueError:
        pass  # NaN tokens, or really malformed: the standard library knows both and says where.
    if not body:
        raise MalformedRequest(f"the body is empty: send {expected}")
    try:
        return json.loads(body.decode("utf-8"), parse_float=_finite)
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise MalformedRequest("the body is nested too deeply to be read") from None
    except ValueError as error:
        raise MalformedRequest(f"the body is not JSON: {error}") from None


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise MalformedRequest(f"the number {shown} is out of range; write Infinity for an infinite value")
    return value


def json_kind(value: object) -> str:
    """Name a JSON value in a sentence."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value if len(value) <= 40 else value[:37] + "...")
        case dict():
            return "an object"
        case list():
            return "an array"
        case int() if abs(value) >= 10**40:
            return f"an integer of {len(str(abs(value))) if abs(value) < 10**4000 else 'thousands of'} digits"
        case _:
            return str(value)


class ExampleReader:
    """Reads one value of one input into an array of the signature's dtype.

    ``lengths`` collects, for the example at hand, the size of each length axis that was seen, and by which input.
    """

    def __init__(self, signature: ModelSignature, tensor: TensorSignature) -> None:
        self._signature = signature
        self._tensor = tensor
        self._kind = kind_of(tensor.dtype)
        self._dtype = numpy_dtype(tensor.dtype) if self._kind != "other" else None

    def read(self, value: Any, *, index: int, lengths: dict[str, tuple[int, str]]) -> Array:
        """Return the array of example ``index``. Errors: WrongShape, WrongDtype."""
        return self.read_as(value, self._shape(value, index, lengths), index=index)

    def read_as(self, value: Any, shape: tuple[int, ...], *, index: int) -> Array:
        """Return the array of example ``index``, whose shape is known. Errors: WrongShape, WrongDtype."""
        flat: list[Any] = []
        self._flatten(value, shape, 0, flat, index)
        return self.convert(flat, shape, index=index).reshape(shape)

    def _where(self, index: int) -> str:
        return f"input {self._tensor.name!r} of instance {index}"

    def _expected(self) -> str:
        return describe(self._tensor, self._signature)

    def _shape(self, value: Any, index: int, lengths: dict[str, tuple[int, str]]) -> tuple[int, ...]:
        """Measure ``value`` along its first elements and compare with the signature."""
        got: list[int] = []
        inner = value
        while isinstance(inner, list) and len(got) <= _MAX_DIMENSIONS:
            got.append(len(inner))
            if not inner:
                break
            inner = inner[0]
        dims = self._tensor.shape
        # An empty array says nothing of the dimensions inside it.
        ends_early = bool(got) and got[-1] == 0 and len(got) < len(dims)
        if len(got) != len(dims) and not ends_early:
            raise WrongShape(self._shape_sentence(got, index))
        sizes: list[int] = []
        for position, dim in enumerate(dims):
            size = got[position] if position < len(got) else (dim if isinstance(dim, int) else 0)
            if isinstance(dim, int):
                if size != dim:
                    raise WrongShape(self._shape_sentence(got, index))
            else:
                self._agree(dim, size, got, index, lengths)
            sizes.append(size)
        return tuple(sizes)

    def _agree(self, axis: str, size: int, got: list[int], index: int, lengths: dict[str, tuple[int, str]]) -> None:
        longest = self._signature.axes[self._signature.axis_index[axis]].max
        if size > longest:
            raise WrongShape(
                f"{self._where(index)}: expected {self._expected()}, got {shape_text(got)}; shorten it to {longest}"
            )
        known, by = lengths.setdefault(axis, (size, self._tensor.name))
        if known != size:
            raise WrongShape(
                f"{self._where(index)}: its length is {size}, but input {by!r} of the same example has {known}; "
                "send both at the same length"
            )

    def _shape_sentence(self, got: list[int], index: int) -> str:
        dims = self._tensor.shape
        if len(got) > _MAX_DIMENSIONS:
            return f"{self._where(index)}: expected {self._expected()}, got more than {_MAX_DIMENSIONS} dimensions"
        if len(got) == len(dims) + 1 and got[0] == 1:
            hint = "leave the batch dimension out: an instance is one example"
        elif not dims:
            hint = "send one value without brackets"
        else:
            hint = "send this shape"
        what = shape_text(got) if got else "a single value"
        return f"{self._where(index)}: expected {self._expected()}, got {what}; {hint}"

    def _flatten(self, value: Any, shape: tuple[int, ...], depth: int, flat: list[Any], index: int) -> None:
        if depth == len(shape):
            flat.append(value)
            return
        if not isinstance(value, list) or len(value) != shape[depth]:
            what = f"an array of {len(value)}" if isinstance(value, list) else json_kind(value)
            raise WrongShape(
                f"{self._where(index)}: expected {self._expected()}, got {what} where its neighbours are arrays of "
                f"{shape[depth]}; make all of them equally long"
            )
        if depth + 1 == len(shape):
            flat.extend(value)
        else:
            for inner in value:
                self._flatten(inner, shape, depth + 1, flat, index)

    def convert(self, flat: list[Any], shape: tuple[int, ...], *, index: int) -> Array:
        """Return the values of an example of that shape, flat as they are given. Errors: WrongShape, WrongDtype."""
        if self._dtype is None:
            raise WrongDtype(
                f"input {self._tensor.name!r} is {self._tensor.dtype}, which JSON has no form for: "
                "the model can't be asked in this format"
            )
        types = set(map(type, flat))
        if self._kind == "string":
            return self._strings(flat, shape, index)
        allowed = _JSON_TYPES[self._kind]
        if not types <= allowed:
            position = next(i for i, value in enumerate(flat) if type(value) not in allowed)
            raise self._refuse(flat[position], position, shape, index)
        try:
            if self._kind != "float":
                return np.array(flat, self._dtype)
            doubles = np.array(flat, np.float64)
        except OverflowError:
            position = next(i for i, value in enumerate(flat) if not self._fits(value))
            raise self._refuse(flat[position], position, shape, index) from None
        values = narrow(doubles, self._dtype)
        overflowed = np.isfinite(doubles) & ~np.isfinite(values)
        if overflowed.any():
            position = int(overflowed.argmax())
            raise self._refuse(flat[position], position, shape, index)
        return values

    def _fits(self, value: float) -> bool:
        try:
            np.array([value], np.float64 if self._kind == "float" else self._dtype)
        except OverflowError:
            return False
        return True

    def _strings(self, flat: list[Any], shape: tuple[int, ...], index: int) -> Array:
        values = np.empty(len(flat), object)
        for position, value in enumerate(flat):
            if isinstance(value, str):
                try:
                    values[position] = value.encode()
                except UnicodeEncodeError:
                    raise WrongDtype(
                        f"{self._where(index)}{_at(position, shape)}: half of a surrogate pair is no character; "
                        'send bytes as {"b64": "..."}'
                    ) from None
            elif isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
                try:
                    values[position] = base64.b64decode(value["b64"], validate=True)
                except (ValueError, binascii.Error) as error:
                    raise WrongDtype(
                        f"{self._where(index)}{_at(position, shape)}: the value of 'b64' is not base64: {error}"
                    ) from None
            else:
                raise self._refuse(value, position, shape, index)
        return values

    def _refuse(self, value: object, position: int, shape: tuple[int, ...], index: int) -> WrongShape | WrongDtype:
        where = f"{self._where(index)}{_at(position, shape)}"
        if isinstance(value, list):
            return WrongShape(
                f"{where}: expected {self._expected()}, got an array where a value belongs; send this shape"
            )
        dtype, got = self._tensor.dtype, json_kind(value)
        if self._kind == "integer" and isinstance(value, float):
            hint = "write whole numbers without point and exponent, within its range"
        elif self._kind in {"integer", "float"} and isinstance(value, int | float) and not isinstance(value, bool):
            hint = f"{dtype} can't hold it"
        elif isinstance(value, dict) and value.keys() == {"b64"}:
            hint = "'b64' is for strings only"
        else:
            hint = {
                "integer": "send an integer",
                "float": "send a number",
                "bool": "send true or false",
                "string": 'send a string or {"b64": "..."}',
            }[self._kind]
        return WrongDtype(f"{where}: expected {dtype}, got {got}; {hint}")


def _at(position: int, shape: tuple[int, ...]) -> str:
    """Write the place of a flat position, ``[2][5]``; nothing for a scalar."""
    return "".join(f"[{int(i)}]" for i in np.unravel_index(position, shape)) if shape else ""
