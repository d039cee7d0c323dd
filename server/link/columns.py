"""Columns as buffers: the rows of several requests end to end, read back where they lie.

Both ends know a model's signature, so of dtype and shape only what it leaves open travels. A column of ``n`` rows is::

    fixed shape, numbers    the values
    fixed shape, strings    the length of each (uint32), then their bytes
    varying shape           the shape of each row (uint32 [n, rank]), then as above, rows end to end
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from server.link.frames import LARGE_BYTES, FrameReader, FrameWriter
from server.protocol import Array, Column
from server.protocol.dtypes import numpy_dtype
from server.signature import STRING, TensorSignature

__all__ = ["ColumnCodec"]


class ColumnCodec:
    """Writes and reads the columns of one input or output. Make one for each and keep it."""

    __slots__ = (
        "_dtype",
        "_has_buffer",
        "_is_fixed",
        "_is_string",
        "_name",
        "_rank",
        "_row_bytes",
        "_row_size",
        "_shape",
    )

    def __init__(self, tensor: TensorSignature) -> None:
        self._name = tensor.name
        self._dtype: np.dtype[Any] = numpy_dtype(tensor.dtype)
        self._is_string = tensor.dtype == STRING
        #: True for dtypes whose arrays show their bytes to whoever copies them, as NumPy's own do.
        self._has_buffer = self._dtype.kind in "biuf"
        self._is_fixed = tensor.is_fixed
        self._rank = len(tensor.shape)
        self._shape: tuple[int, ...] = tuple(dim for dim in tensor.shape if isinstance(dim, int))
        self._row_size = math.prod(self._shape)
        self._row_bytes = self._row_size * self._dtype.itemsize

    def misfit(self, column: Column, n_rows: int) -> str | None:
        """Return why a column can't be written for ``n_rows``, or None: who reads it goes by the signature alone."""
        if self._is_fixed:
            if isinstance(column, list) or column.dtype != self._dtype or column.shape != (n_rows, *self._shape):
                return f"{self._name!r} is {_form(column)}, expected {self._dtype} of shape {(n_rows, *self._shape)}"
        elif len(column) != n_rows or any(row.dtype != self._dtype or row.ndim != self._rank for row in column):
            return f"{self._name!r} is {_form(column)}, expected {n_rows} arrays of {self._dtype} and rank {self._rank}"
        return None

    def write(self, writer: FrameWriter, parts: Sequence[Column]) -> None:
        """Write the columns of several requests as one. None of them is a ``misfit``."""
        if not self._is_fixed:
            rows = [row for part in parts for row in part]
            writer.add(_view(np.array([row.shape for row in rows], np.uint32)))
            self._write_values(writer, rows)
        else:
            self._write_values(writer, parts)  # type: ignore[arg-type]

    def read(self, reader: FrameReader, n_rows: int) -> Column:
        """Read what was written, ``n_rows`` in all. Shapes: as in ``Rows``. Errors: LinkGarbled."""
        if not self._is_fixed:
            return self._read_rows(reader, n_rows)
        return self._read_values(reader, n_rows * self._row_size).reshape(n_rows, *self._shape)

    def _read_rows(self, reader: FrameReader, n_rows: int) -> list[Array]:
        told = np.frombuffer(reader.take(4 * n_rows * self._rank), np.uint32).reshape(n_rows, self._rank)
        shapes = [tuple(shape) for shape in told.tolist()]
        sizes = [math.prod(shape) for shape in shapes]
        values = self._read_values(reader, sum(sizes))
        return [values[start:stop].reshape(shape) for shape, (start, stop) in zip(shapes, _ranges(sizes), strict=True)]

    def _write_values(self, writer: FrameWriter, arrays: Sequence[Array]) -> None:
        if self._is_string:
            strings = [string for array in arrays for string in array.reshape(-1).tolist()]
            writer.add(_view(np.array([len(string) for string in strings], np.uint32)))
            writer.add(b"".join(strings))
        elif len(arrays) == 1 and arrays[0].nbytes >= LARGE_BYTES:
            writer.add(_view(arrays[0]))
        elif self._has_buffer and all(array.flags.c_contiguous for array in arrays):
            writer.add(b"".join(arrays))  # type: ignore[arg-type]
        else:
            writer.add(b"".join([_view(array) for array in arrays]))

    def _read_values(self, reader: FrameReader, size: int) -> Array:
        if not self._is_string:
            return np.frombuffer(reader.take(size * self._dtype.itemsize), self._dtype)
        lengths = np.frombuffer(reader.take(4 * size), np.uint32).tolist()
        data = bytes(reader.take(sum(lengths)))
        values = np.empty(size, object)
        # Filled one by one: given a list of bytes, NumPy would make an array of its own fixed-size strings.
        for index, (start, stop) in enumerate(_ranges(lengths)):
            values[index] = data[start:stop]
        return values


def _ranges(counts: Iterable[int]) -> Iterable[tuple[int, int]]:
    return pairwise(accumulate(counts, initial=0))


def _view(array: Array) -> memoryview:
    """Return an array's bytes, without a copy where they lie together."""
    # By way of uint8: dtypes that NumPy doesn't own, such as bfloat16, have no buffers.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _form(column: Column) -> str:
    if isinstance(column, list):
        return f"a list of {len(column)} arrays"
    return f"{column.dtype} of shape {column.shape}"
