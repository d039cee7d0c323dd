"""Values of one input of the Open Inference Protocol to an array, from JSON or from bytes.

``data`` may be nested as the shape says, or flat in row-major order.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from server.protocol.dtypes import booleans, kind_of, numpy_dtype, shape_text
from server.protocol.errors import ProtocolError, WrongShape
from server.protocol.json_examples import ExampleReader, json_kind, parse_json
from server.protocol.number_buffers import NumberBuffer, has_shape, parser_for
from server.protocol.rows import Array, Octets
from server.signature import STRING, ModelSignature, TensorSignature

__all__ = ["JsonSource", "ValueReader"]

#: A byte string is preceded by its length.
_LENGTH = struct.Struct("<I")


class ValueReader:
    """Reads the values of one input."""

    def __init__(self, signature: ModelSignature, tensor: TensorSignature) -> None:
        self._tensor = tensor
        self._rank = len(tensor.shape)
        self._dtype = numpy_dtype(tensor.dtype)
        self._exact = ExampleReader(signature, tensor)
        #: None: it has no numbers.
        self.numbers = NumberBuffer(tensor.dtype) if kind_of(tensor.dtype) in {"float", "integer"} else None

    def from_value(self, value: Any, shape: tuple[int, ...]) -> Array:
        """Read parsed JSON. Errors: WrongShape; WrongDtype."""
        size = math.prod(shape)
        if not isinstance(value, list):
            if shape:
                raise WrongShape(f"input {self._tensor.name!r}: 'data' must be an array, got {json_kind(value)}")
            value = [value]
        is_flat = len(value) == size and not any(isinstance(element, list) for element in value)
        if is_flat:
            return self._convert(value, shape)
        if shape and len(value) == shape[0] and any(isinstance(element, list) for element in value):
            return self._from_nested(value, shape)
        if any(isinstance(element, list) for element in value):
            got = f"nested arrays, {len(value)} at the outermost level"
        else:
            got = f"{len(value)} values"
        raise WrongShape(
            f"input {self._tensor.name!r}: the shape {shape_text(shape)} takes {size} values, 'data' has {got}"
        )

    def from_bytes(
        self, body: Octets, start: int, n_bytes: int, shape: tuple[int, ...], *, is_bare: bool = False
    ) -> Array:
        """Read little-endian, row-major values where they lie; nothing is copied but strings.

        ``is_bare``: they are one byte string.
        Errors: WrongShape, if byte strings are more or fewer than the shape says; WrongDtype for a boolean that is
            neither 0 nor 1.
        """
        if is_bare:
            values = np.empty(1, object)
            values[0] = bytes(body[start : start + n_bytes])
            return values
        if self._tensor.dtype == STRING:
            return self._strings(memoryview(body)[start : start + n_bytes], math.prod(shape)).reshape(shape)
        if self._dtype == np.bool_:
            octets = memoryview(body)[start : start + n_bytes]
            return booleans(octets, f"input {self._tensor.name!r}").reshape(shape)
        return np.frombuffer(body, self._dtype, n_bytes // self._dtype.itemsize, start).reshape(shape)

    def of_bytes(self, data: bytes) -> Array | None:
        """Return the values of several requests, flat; None: some are no values. Not for strings, nor for none."""
        values = np.frombuffer(data, self._dtype)
        if self._dtype == np.bool_ and values.view(np.uint8).max() > 1:
            return None
        return values

    def _rows(self, shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        """Return how many examples a shape has, and the shape of one."""
        return (shape[0], shape[1:]) if len(shape) > self._rank else (1, shape)

    def _convert(self, flat: list[Any], shape: tuple[int, ...]) -> Array:
        try:
            return self._exact.convert(flat, (len(flat),), index=0).reshape(shape)
        except ProtocolError:
            # Once more by example, so that the sentence names the one that is wrong.
            n, inner = self._rows(shape)
            size = math.prod(inner)
            for index in range(n):
                self._exact.convert(flat[index * size : (index + 1) * size], inner, index=index)
            raise

    def _from_nested(self, value: list[Any], shape: tuple[int, ...]) -> Array:
        n, inner = self._rows(shape)
        examples = value if len(shape) > self._rank else [value]
        rows = [self._exact.read_as(example, inner, index=index) for index, example in enumerate(examples[:n])]
        return np.stack(rows).reshape(shape)

    def _strings(self, data: memoryview, size: int) -> Array:
        place = 0
        n_bytes = len(data)
        if size * _LENGTH.size > n_bytes:
            raise WrongShape(self._strings_sentence(size, "fewer"))
        values = np.empty(size, object)
        for index in range(size):
            if place + _LENGTH.size > n_bytes:
                raise WrongShape(self._strings_sentence(size, "fewer"))
            (length,) = _LENGTH.unpack_from(data, place)
            place += _LENGTH.size
            if place + length > n_bytes:
                raise WrongShape(self._strings_sentence(size, "fewer, or a length that reaches past their end"))
            values[index] = bytes(data[place : place + length])
            place += length
        if place != n_bytes:
            raise WrongShape(self._strings_sentence(size, "more"))
        return values

    def _strings_sentence(self, size: int, got: str) -> str:
        return (
            f"input {self._tensor.name!r}: the shape takes {size} byte strings, each after its length in 4 bytes, "
            f"little-endian; 'binary_data_size' holds {got}"
        )


class JsonSource:
    """Reads the JSON of one input again and again, at one shape."""

    __slots__ = ("_flat", "_inner", "_n_brackets", "_numbers", "_reader", "_shape", "_size")

    def __init__(self, reader: ValueReader, shape: tuple[int, ...]) -> None:
        self._reader = reader
        self._numbers = reader.numbers
        self._shape = shape
        self._inner = shape[1:]
        self._size = math.prod(shape)
        self._flat: tuple[int, ...] = (self._size,)
        #: As many as nested arrays of this shape need, so that none is where a value belongs.
        self._n_brackets, arrays = 0, 1
        for length in shape:
            self._n_brackets += arrays
            arrays *= length

    def read(self, text: bytes, *, body_bytes: int) -> Array | None:
        """Read JSON that was cut out of a body of that size; None: it is none, or has not this shape or dtype."""
        if self._numbers is not None:
            try:
                array = self._fast(text, body_bytes)
            except (ValueError, TypeError, AttributeError, RuntimeError):
                array = None  # NaN tokens, or wrong: the exact way knows
            if array is not None:
                return array
        try:
            return self._reader.from_value(parse_json(text), self._shape)
        except ProtocolError:
            return None

    def read_many(self, texts: Sequence[bytes]) -> Array | None:
        """Read arrays of several requests, all nested as the shape says or all flat, end to end and flat.

        None: one of them may be something else. Together at most ``SHARED_PARSER_MAX_BYTES``.
        """
        if self._numbers is None:
            return None
        n_brackets, inner = 1, self._flat
        n_elements = len(texts)
        if texts[0][1:2] == b"[":
            if any(text[:1] != b"[" or text[-1:] != b"]" for text in texts):
                return None
            # What stands between the outer brackets: rows.
            texts = [text[1:-1] for text in texts]
            n_brackets, inner = self._n_brackets - 1, self._inner
            n_elements *= self._shape[0]
        for text in texts:
            if (
                text[:1] != b"["
                or text[-1:] != b"]"
                or text.count(b"[") != n_brackets
                or text.count(b"]") != n_brackets
            ):
                return None
        joined = b"[%b]" % b",".join(texts)
        if b'"' in joined:
            return None
        try:
            parsed = parser_for(len(joined)).parse(joined)
            if len(parsed) != n_elements or not has_shape(parsed, inner):
                return None
            flat = self._numbers.take(parsed)
        except (ValueError, TypeError, LookupError, AttributeError, RuntimeError):
            return None
        return None if flat is None or flat.size != len(texts) * self._size else flat

    def _fast(self, text: bytes, body_bytes: int) -> Array | None:
        # No proxy of the document may outlive this call: the parser refuses its next document while one lives.
        parsed = parser_for(body_bytes).parse(text)
        n_brackets = text.count(b"[")
        if n_brackets != 1 and (
            n_brackets != self._n_brackets or len(parsed) != self._shape[0] or not has_shape(parsed, self._inner)
        ):
            return None
        flat = self._numbers.take(parsed)  # type: ignore[union-attr]
        return None if flat is None or flat.size != self._size else flat.reshape(self._shape)
