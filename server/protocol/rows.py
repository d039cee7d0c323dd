"""Examples after decoding: what every wire format becomes before it is queued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = [
    "JSON",
    "Array",
    "Body",
    "Column",
    "Encoded",
    "Headers",
    "LongBody",
    "Octets",
    "PredictRequest",
    "Rows",
    "end_to_end",
]

#: Lower-case names and values.
Headers = tuple[tuple[bytes, bytes], ...]

JSON = (b"content-type", b"application/json")
_JSON: Headers = (JSON,)


class LongBody:
    """A body in pieces: where it is long, putting them together is a copy of all of it. ``bytes()`` makes one."""

    __slots__ = ("_n_bytes", "parts")

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        self.parts = parts
        self._n_bytes = sum(map(len, parts))

    def __len__(self) -> int:
        return self._n_bytes

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)


#: A request's body as it was received.
Octets = bytes | memoryview
#: An answer's.
Body = bytes | LongBody
#: A body, and the headers that say what it is, without its length.
Encoded = tuple[Body, Headers]

#: Any array: its dtype is the signature's, so the type checker can't know it.
Array = npt.NDArray[Any]

#: All rows of one input or output: stacked where its shape is fixed, else one array for each row.
Column = np.ndarray[Any, np.dtype[Any]] | list[np.ndarray[Any, np.dtype[Any]]]


@dataclass(slots=True, eq=False)
class Rows:
    """The examples of one request, checked against the model's signature.

    Shapes: ``columns`` follows ``signature.inputs``: an array ``[n, *shape]`` where the input's shape is fixed,
        else a list of ``n`` arrays, each at its own length. Strings are object arrays of ``bytes``. Arrays may be
        read-only. ``lengths`` holds, for each row, the true size of every length axis in the order of
        ``signature.axes``; None where the signature has no axes.
    """

    n: int
    columns: tuple[Column, ...]
    lengths: list[tuple[int, ...]] | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes that the examples take in memory, about."""
        return sum(map(_column_bytes, self.columns))


def end_to_end(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several requests to one entry point as one."""
    columns: list[Column] = []
    for column in zip(*(rows.columns for rows in parts), strict=True):
        if isinstance(column[0], list):
            columns.append([row for part in column for row in part])
        else:
            columns.append(np.concatenate(column))
    lengths = None if parts[0].lengths is None else [each for rows in parts for each in rows.lengths or ()]
    return Rows(sum(rows.n for rows in parts), tuple(columns), lengths)


def _column_bytes(column: Column) -> int:
    if isinstance(column, list):
        return sum(map(_column_bytes, column))
    if column.dtype == object:
        return column.nbytes + sum(map(len, column.flat))
    return column.nbytes


class Encoder(Protocol):
    """Who writes answers of TensorFlow Serving's REST form."""

    def encode(self, outputs: Sequence[Column], *, row_form: bool) -> bytes:
        """Write ``predictions`` (row form) or ``outputs``."""


@dataclass(slots=True, eq=False)
class PredictRequest:
    """A prediction request in TensorFlow Serving's REST form.

    ``row_form`` is True where the caller sent ``instances``: it is answered likewise, by ``codec``.
    """

    rows: Rows
    row_form: bool
    signature_name: str | None = None
    codec: Encoder | None = None
    timeout_s: float | None = None
    priority: int | None = None

    def encode(self, outputs: Sequence[Column]) -> Encoded:
        """Write the answer; ``outputs`` are in the signature's order."""
        assert self.codec is not None, "a codec read it"
        return self.codec.encode(outputs, row_form=self.row_form), _JSON
