"""One InferInputTensor of the Open Inference Protocol: from its fields to an array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from server.protocol.byte_strings import read_byte_strings
from server.protocol.dtypes import booleans, numpy_dtype, shape_text
from server.protocol.errors import MalformedRequest, WrongDtype, WrongShape
from server.protocol.oip_datatypes import DTYPES
from server.protocol.oip_proto_parameters import read_parameter
from server.protocol.proto_wire import LEN, VARINT, fields, read_numbers, read_varints, text, within
from server.protocol.rows import Array

__all__ = ["CONTENTS", "InputTensor", "input_tensor"]

#: The field of InferTensorContents that holds a datatype, and the dtype of its elements.
CONTENTS = {
    "BOOL": (1, "bool"),
    "INT8": (2, "int32"),
    "INT16": (2, "int32"),
    "INT32": (2, "int32"),
    "INT64": (3, "int64"),
    "UINT8": (4, "uint32"),
    "UINT16": (4, "uint32"),
    "UINT32": (4, "uint32"),
    "UINT64": (5, "uint64"),
    "FP32": (6, "float32"),
    "FP64": (7, "float64"),
    "BYTES": (8, "string"),
}
_CONTENTS_NAMES = ("bool", "int", "int64", "uint", "uint64", "fp32", "fp64", "bytes")

_NAME, _DATATYPE, _SHAPE, _PARAMETERS, _CONTENTS = (number << 3 | LEN for number in range(1, 6))
_ONE_SIZE = 3 << 3 | VARINT


#: Descriptions that are kept. Clients send the same again and again, as raw contents are elsewhere.
_MAX_KNOWN = 1_024
_MAX_KNOWN_BYTES = 128
_KNOWN: dict[bytes, InputTensor] = {}


def input_tensor(message: memoryview) -> InputTensor:
    """Return an input as it is described, and with its typed contents if it has any. Errors: see ``InputTensor``."""
    if len(message) > _MAX_KNOWN_BYTES:
        return InputTensor(message)
    key = bytes(message)
    found = _KNOWN.get(key)
    if found is None:
        found = InputTensor(message)
        if not found.contents:
            if len(_KNOWN) >= _MAX_KNOWN:
                _KNOWN.clear()
            _KNOWN[key] = found
    return found


class InputTensor:
    """What describes an input, and its typed contents if it has any."""

    __slots__ = ("_dtype", "_n_bytes", "contents", "datatype", "name", "shape")

    def __init__(self, message: memoryview) -> None:
        """Errors: MalformedRequest, WrongDtype, WrongShape."""
        name: Any = b""
        datatype: Any = b""
        shape: list[int] = []
        #: Parts of a message of contents.
        self.contents: list[memoryview] = []
        for tag, value in fields(message):
            if tag == _NAME:
                name = value
            elif tag == _DATATYPE:
                datatype = value
            elif tag == _SHAPE:
                shape += read_varints(value).tolist()  # type: ignore[arg-type]
            elif tag == _ONE_SIZE:
                shape.append(value)  # type: ignore[arg-type]
            elif tag == _CONTENTS and value:
                self.contents.append(value)  # type: ignore[arg-type]
            elif tag == _PARAMETERS:
                key, _ = read_parameter(value)  # type: ignore[arg-type]
                if key.startswith("shared_memory"):
                    raise MalformedRequest("shared memory is not offered by this server; send the tensor's bytes")
        self.name = text(name, "an input's name")
        self.datatype = text(datatype, f"the datatype of input {self.name!r}")
        if self.datatype not in DTYPES:
            raise WrongDtype(f"input {self.name!r}: datatype {self.datatype[:40]!r} is none of {', '.join(DTYPES)}")
        if any(size >> 62 for size in shape):  # negative ones are huge here
            raise WrongShape(f"input {self.name!r}: a size in its shape is negative, or too large")
        self.shape = tuple(shape)
        self._dtype = numpy_dtype(DTYPES[self.datatype])
        self._n_bytes = math.prod(shape) * self._dtype.itemsize

    def from_raw(self, raw: memoryview) -> Array:
        """Read elements from their bytes: a view of them, except of strings. Errors: WrongShape, WrongDtype."""
        dtype = self._dtype
        if dtype.kind == "O":
            return self._shaped(read_byte_strings(raw, math.prod(self.shape), f"input {self.name!r}"))
        if len(raw) != self._n_bytes:
            raise WrongShape(
                f"input {self.name!r}: {self.datatype}{shape_text(self.shape)} takes {self._n_bytes} bytes, "
                f"its raw contents have {len(raw)}"
            )
        if dtype.kind == "b":
            return self._shaped(booleans(raw, f"input {self.name!r}"))
        return self._shaped(np.frombuffer(raw, dtype))

    def from_contents(self) -> Array:
        """Read elements from their typed field. Errors: WrongDtype, WrongShape, MalformedRequest."""
        if self.datatype not in CONTENTS:
            raise WrongDtype(f"input {self.name!r}: {self.datatype} has no typed contents; send raw_input_contents")
        number, dtype = CONTENTS[self.datatype]
        found = []
        for tag, value in (field for part in self.contents for field in fields(part)):
            if tag >> 3 == number:
                found.append((tag, value))
            elif tag >> 3 <= len(_CONTENTS_NAMES):
                raise WrongDtype(
                    f"input {self.name!r}: {self.datatype} goes into {_CONTENTS_NAMES[number - 1]}_contents, "
                    f"not into {_CONTENTS_NAMES[(tag >> 3) - 1]}_contents"
                )
        values: Array
        if dtype == "string":
            strings = [bytes(value) for _, value in found if isinstance(value, memoryview)]
            values = np.empty(len(strings), object)
            values[:] = strings
        else:
            values = within(read_numbers(found, numpy_dtype(dtype)), DTYPES[self.datatype], self.name)
        n = math.prod(self.shape)
        if values.size != n:
            raise WrongShape(
                f"input {self.name!r}: {self.datatype}{shape_text(self.shape)} has {n} elements, "
                f"its contents have {values.size}"
            )
        return self._shaped(values)

    def _shaped(self, values: Array) -> Array:
        try:
            return values.reshape(self.shape)
        except ValueError:  # no elements, and sizes or dimensions past what NumPy counts
            raise WrongShape(f"input {self.name!r}: no tensor has the shape {shape_text(self.shape)[:80]}") from None
