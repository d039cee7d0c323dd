"""Examples as binary tensors of the Open Inference Protocol, and answers back. Pure: no connection.

Numbers travel as they lie in memory, which costs neither digits nor parsing. What can't travel so, or is not what the
model takes, is left to JSON: there examples may differ in length, and there the server says what is wrong with which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from rowwise._metadata import RemoteSignature
from rowwise._predictions import Prediction
from rowwise.errors import BadAnswer

__all__ = ["JSON_LENGTH", "TensorForm"]

#: The header that says which part of a body is JSON.
JSON_LENGTH = "Inference-Header-Content-Length"

_DATATYPES = {
    "bool": "BOOL",
    **{f"{kind}{bits}": f"{kind.upper()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}
#: NumPy's names of the datatypes, as they lie in an answer. A BF16 is the upper half of a float32.
_NUMPY = {datatype: np.dtype(name).newbyteorder("<") for name, datatype in _DATATYPES.items()} | {
    "BF16": np.dtype("<u2")
}
_ANSWER_IN_BINARY = {"binary_data_output": True}
#: Heads of requests that are remembered, by their shapes.
_MAX_HEADS = 256


class TensorForm:
    """How examples of one signature travel in binary."""

    def __init__(self, signature: RemoteSignature) -> None:
        self._signature = signature
        #: Whether outputs of several examples may differ in shape, so that no tensor can hold them.
        self._differs = any(shape is None or None in shape for shape in signature.output_shapes.values())
        #: Whether every value of it is a number whose shape is known.
        self.is_possible = bool(signature.outputs) and all(
            dtype is not None and dtype.name in _DATATYPES and signature.input_shapes.get(name) is not None
            for name, dtype in signature.input_dtypes.items()
        )
        self.is_possible &= None not in signature.outputs.values()
        self._heads: dict[tuple[tuple[int, ...] | None, ...], bytes] = {}

    def encode(self, examples: Sequence[Any]) -> tuple[bytes, int] | None:
        """Return a body and the length of its JSON; None: they can't travel so, or are not what the model takes."""
        if not self.is_possible or not examples or (self._differs and len(examples) > 1):
            return None
        columns = [self._column(name, examples) for name in self._signature.inputs]
        if any(column is None for column in columns):
            return None
        head = self._head(tuple(None if column is _LEFT_OUT else column.shape for column in columns))  # type: ignore[union-attr]
        return b"".join([head, *(column.tobytes() for column in columns if column is not _LEFT_OUT)]), len(head)  # type: ignore[union-attr]

    def _column(self, name: str, examples: Sequence[Any]) -> np.ndarray[Any, Any] | None:
        """Return an input of all examples, stacked; None where that can't be."""
        signature = self._signature
        values = []
        for example in examples:
            if isinstance(example, Mapping):
                if not signature.known.issuperset(example):
                    return None
                if name in example:
                    values.append(example[name])
            elif (name,) == signature.required:
                values.append(example)
        if not values and name in signature.optional:
            return _LEFT_OUT
        if len(values) < len(examples):
            return None
        dtype, shape = signature.input_dtypes[name], signature.input_shapes[name]
        assert dtype is not None, "it is possible"
        assert shape is not None, "it is possible"
        try:
            column = np.asarray(values[0])[None] if len(values) == 1 else np.asarray(values)
        except ValueError:
            return None  # of different lengths
        if column.ndim != len(shape) + 1 or any(
            want not in (None, have) for want, have in zip(shape, column.shape[1:], strict=True)
        ):
            return None
        return _cast(column, dtype)

    def _head(self, shapes: tuple[tuple[int, ...] | None, ...]) -> bytes:
        head = self._heads.get(shapes)
        if head is None:
            head = orjson.dumps({"inputs": self._inputs(shapes), "parameters": _ANSWER_IN_BINARY})
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[shapes] = head
        return head

    def _inputs(self, shapes: tuple[tuple[int, ...] | None, ...]) -> list[dict[str, Any]]:
        inputs = []
        for name, shape in zip(self._signature.inputs, shapes, strict=True):
            dtype = self._signature.input_dtypes[name]
            if shape is None or dtype is None:
                continue
            n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            described = {"name": name, "shape": shape, "datatype": _DATATYPES[dtype.name]}
            inputs.append({**described, "parameters": {"binary_data_size": n_bytes}})
        return inputs

    def decode(self, name: str, body: bytes, json_length: str | None, *, n_examples: int) -> list[Prediction]:
        """Return the predictions of an answer, arrays that share its memory. Errors: BadAnswer."""
        try:
            length = len(body) if json_length is None else int(json_length)
            told = orjson.loads(body[:length])
            # Writable, and copied once: whoever gets an array may change it.
            columns = _columns(told["outputs"], bytearray(memoryview(body)[length:]))
            outputs = {key: columns[key] for key in self._signature.outputs}
            if any(column.shape[0] != n_examples for column in outputs.values()):
                raise ValueError(f"not {n_examples} rows")
            for key, column in outputs.items():
                if column.dtype != self._signature.outputs[key]:
                    raise TypeError(f"output {key!r} is {column.dtype}, not {self._signature.outputs[key]}")
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise BadAnswer(f"model {name!r}: the answer is not what its metadata announces: {error!r}") from error
        if len(outputs) == 1:
            (only,) = outputs.values()
            return [only[row, ...] for row in range(n_examples)]
        return [{key: column[row, ...] for key, column in outputs.items()} for row in range(n_examples)]


#: Stands for an input that no example has.
_LEFT_OUT: np.ndarray[Any, Any] = np.empty(0)


def _cast(column: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """Return a column in the model's dtype, as a server would read its decimals; None where it would refuse some."""
    if column.dtype == dtype and column.dtype.isnative:
        return column
    kinds = {"b": "b", "f": "iuf"}.get(dtype.kind, "iu")
    if column.dtype.kind not in kinds:
        return None
    with np.errstate(over="ignore"):
        cast = column.astype(dtype)
    if dtype.kind == "f":
        # Too large a number has its own sentence.
        return cast if np.isfinite(cast).all() or np.array_equal(np.isfinite(cast), np.isfinite(column)) else None
    return cast if np.array_equal(cast, column) else None


def _columns(outputs: Sequence[Mapping[str, Any]], data: bytearray) -> dict[str, np.ndarray[Any, Any]]:
    columns: dict[str, np.ndarray[Any, Any]] = {}
    offset = 0
    for output in outputs:
        dtype, shape = _NUMPY[output["datatype"]], tuple(output["shape"])
        n_bytes = output["parameters"]["binary_data_size"]
        column = np.frombuffer(data, dtype, n_bytes // dtype.itemsize, offset).reshape(shape)
        if output["datatype"] == "BF16":
            column = (column.astype(np.uint32) << 16).view(np.float32)
        columns[output["name"]] = column
        offset += n_bytes
    return columns
