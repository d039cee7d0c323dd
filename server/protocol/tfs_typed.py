"""Shortcut: a decoder compiled for one signature's exact JSON form.

msgspec checks keys, nesting, lengths and types while it parses, so that what it returns needs no second look.
What it refuses may still be a request (NaN tokens, a single input sent by name): ``None`` sends it on to the
exact reader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import numpy as np

from server.protocol.dtypes import float_limit, kind_of, numpy_dtype
from server.protocol.number_buffers import narrow_within
from server.protocol.rows import Array, Column, PredictRequest, Rows
from server.signature import ModelSignature, TensorSignature

__all__ = ["TypedReader"]

_SCALARS: dict[str, type] = {"float": float, "integer": int, "bool": bool}


class TypedReader:
    """Reads bare values of a model with one input, or objects of one with several; rows or columns."""

    def __init__(self, signature: ModelSignature, decoder: msgspec.json.Decoder[Any]) -> None:
        self._decoder = decoder
        self._inputs = signature.inputs
        self._single = len(signature.inputs) == 1
        self._fields = tuple(f"f{index}" for index in range(len(signature.inputs)))
        self._converters = tuple(_converter(tensor) for tensor in signature.inputs)
        self._has_lengths = signature.has_lengths
        # For each length axis: the inputs that have it, always as their first dimension.
        self._axis_inputs = tuple(
            tuple(index for index, tensor in enumerate(signature.inputs) if tensor.shape[:1] == (axis.name,))
            for axis in signature.axes
        )

    @classmethod
    def compile(cls, signature: ModelSignature) -> TypedReader | None:
        """Compile the decoder of a signature; None if it has strings, odd names or a length axis further inside."""
        inputs = signature.inputs
        if not inputs or not all(_is_supported(tensor) for tensor in inputs):
            return None
        values = [_json_type(tensor, signature) for tensor in inputs]
        row: Any
        columns: Any
        try:
            if len(inputs) == 1:
                row, columns = values[0], _list_of(values[0])
            else:
                row = _struct("Row", values, inputs)
                columns = _struct("Columns", [_list_of(value) for value in values], inputs)
        except ValueError:  # A name that msgspec can't take as a key: quotes, backslashes, control characters.
            return None
        request = msgspec.defstruct(
            "Request",
            [
                ("instances", _list_of(row) | msgspec.UnsetType, msgspec.UNSET),
                ("inputs", columns | msgspec.UnsetType, msgspec.UNSET),
                ("signature_name", str | None, None),
            ],
            gc=False,
        )
        return cls(signature, msgspec.json.Decoder(request))

    def decode(self, body: bytes, *, max_instances: int) -> PredictRequest | None:
        """Read a request body, or return None."""
        try:
            message = self._decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        row_form = message.instances is not msgspec.UNSET
        if row_form is (message.inputs is not msgspec.UNSET):
            return None
        source = message.instances if row_form else message.inputs
        if self._single:
            values = [source]
        elif row_form:
            values = [[getattr(row, field) for row in source] for field in self._fields]
        else:
            values = [getattr(source, field) for field in self._fields]
        n = len(values[0])
        if not 0 < n <= max_instances or any(len(column) != n for column in values):
            return None
        lengths = None
        if self._has_lengths:
            lengths = self._lengths(values)
            if lengths is None:
                return None
        columns: list[Column] = []
        for converter, column in zip(self._converters, values, strict=True):
            converted = converter(column)
            if converted is None:
                return None
            columns.append(converted)
        return PredictRequest(Rows(n, tuple(columns), lengths), row_form, message.signature_name)

    def _lengths(self, values: list[list[Any]]) -> list[tuple[int, ...]] | None:
        axes: list[list[int]] = []
        for indexes in self._axis_inputs:
            sizes = list(map(len, values[indexes[0]]))
            if any(list(map(len, values[index])) != sizes for index in indexes[1:]):
                return None
            axes.append(sizes)
        return list(zip(*axes, strict=True))


def _is_supported(tensor: TensorSignature) -> bool:
    return kind_of(tensor.dtype) in _SCALARS and all(isinstance(dim, int) for dim in tensor.shape[1:])


def _json_type(tensor: TensorSignature, signature: ModelSignature) -> Any:
    """Return the type of one example's value: lists of the declared lengths around a scalar."""
    kind: Any = _SCALARS[kind_of(tensor.dtype)]
    for dim in reversed(tensor.shape):
        if isinstance(dim, int):
            bounds = msgspec.Meta(min_length=dim, max_length=dim)
        else:
            bounds = msgspec.Meta(max_length=signature.axes[signature.axis_index[dim]].max)
        kind = Annotated[list[kind], bounds]
    return kind


def _list_of(kind: Any) -> Any:
    return list[kind]


def _struct(name: str, types: list[Any], inputs: tuple[TensorSignature, ...]) -> Any:
    fields = [(f"f{index}", kind) for index, kind in enumerate(types)]
    rename = {f"f{index}": tensor.name for index, tensor in enumerate(inputs)}
    return msgspec.defstruct(name, fields, rename=rename, forbid_unknown_fields=True, gc=False)


def _converter(tensor: TensorSignature) -> Callable[[list[Any]], Column | None]:
    """Return what turns the checked values of all rows into a column; None from it: a value is out of range."""
    dtype = numpy_dtype(tensor.dtype)
    shape = tuple(dim for dim in tensor.shape if isinstance(dim, int))
    # The largest sum of squares that no single value out of range can be part of; float64 has nothing above it.
    limit = float_limit(tensor.dtype) ** 2 if kind_of(tensor.dtype) == "float" and tensor.dtype != "float64" else None

    def array(values: list[Any], wanted: tuple[int, ...]) -> Array | None:
        if limit is None:
            try:
                return np.array(values, dtype).reshape(wanted)
            except OverflowError:
                return None
        doubles = np.array(values, np.float64).reshape(wanted)
        return narrow_within(doubles, dtype, limit)

    def stacked(values: list[Any]) -> Column | None:
        return array(values, (len(values), *shape))

    def ragged(values: list[Any]) -> Column | None:
        rows = [array(value, (len(value), *shape)) for value in values]
        return None if any(row is None for row in rows) else rows  # type: ignore[return-value]

    return stacked if tensor.is_fixed else ragged
