"""Shortcut: numbers from the parser's memory into an array, see ``number_buffers``.

Flattening forgets the structure, so it is checked beside it: every array above the innermost level has its declared
length, and the body holds exactly as many brackets as such arrays need. Then no value can be an array itself, nor can
arrays be missing or ragged. (A bracket inside a string only makes the count differ.)

Measured on one row of 64 floats: 3.3 us with all checks, against 4.0 us by way of Python floats; on 16 rows 21 us
against 53 us.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from server.protocol.dtypes import kind_of
from server.protocol.number_buffers import SHARED_PARSER_MAX_BYTES, NumberBuffer, has_shape, parser_for
from server.protocol.rows import Array, Column, PredictRequest, Rows
from server.protocol.tfs_many import cut_out
from server.signature import ModelSignature

__all__ = ["BufferReader"]

#: Below this many numbers in an innermost array its proxy object costs more than its numbers save.
_MIN_INNERMOST = 4


class BufferReader:
    """Reads ``{"instances": [...]}`` of a model with one numeric input."""

    def __init__(self, signature: ModelSignature) -> None:
        (tensor,) = signature.inputs
        self._numbers = NumberBuffer(tensor.dtype)
        self._shape = tuple(dim for dim in tensor.shape if isinstance(dim, int))
        self._max_length = signature.axes[0].max if signature.axes else None
        brackets, arrays = 0, 1
        for dim in tensor.shape:
            brackets += arrays
            arrays *= dim if isinstance(dim, int) else 1
        self._row_brackets = brackets
        self._row_size = arrays

    @classmethod
    def compile(cls, signature: ModelSignature) -> BufferReader | None:
        """Return the reader of a signature, or None where it doesn't fit or doesn't pay."""
        if len(signature.inputs) != 1:
            return None
        (tensor,) = signature.inputs
        if tensor.is_fixed:
            pays = 0 not in tensor.shape and (len(tensor.shape) < 2 or tensor.shape[-1] >= _MIN_INNERMOST)  # type: ignore[operator]
        else:
            pays = len(tensor.shape) == 1
        known = kind_of(tensor.dtype) == "float" or tensor.dtype in {"int64", "uint64"}
        return cls(signature) if known and pays and len(signature.axes) <= 1 else None

    def decode(self, body: bytes, *, max_instances: int) -> PredictRequest | None:
        """Read a request body, or return None."""
        try:
            # No proxy of the document may outlive this call: the parser refuses its next document while one lives.
            return self._read(parser_for(len(body)).parse(body), body, max_instances)
        except (ValueError, TypeError, LookupError, AttributeError, RuntimeError):
            return None

    @property
    def reads_many(self) -> bool:
        """True if several requests can be read at once: where shapes are fixed, and of at least one dimension."""
        return bool(self._shape) and self._max_length is None

    def decode_many(self, bodies: Sequence[bytes], *, max_instances: int) -> tuple[Array, list[int]] | None:
        """Read the bodies of several requests at once: all of their rows, and how many each has.

        Together at most ``SHARED_PARSER_MAX_BYTES``. None: each is to be read alone.
        """
        found = cut_out(bodies, row_brackets=self._row_brackets, max_instances=max_instances)
        if found is None or len(found[0]) > SHARED_PARSER_MAX_BYTES:
            return None
        joined, counts = found
        try:
            column = self._column(parser_for(len(joined)).parse(joined), sum(counts))
        except (ValueError, TypeError, LookupError, AttributeError, RuntimeError):
            return None
        return None if column is None else (column, counts)

    def _read(self, document: Any, body: bytes, max_instances: int) -> PredictRequest | None:
        instances = document["instances"]
        n = len(instances)
        if len(document) != 1 or not 0 < n <= max_instances or body.count(b"[") != 1 + n * self._row_brackets:
            return None
        if self._max_length is not None:
            return self._read_ragged(instances, n)
        column = self._column(instances, n)
        return None if column is None else PredictRequest(Rows(n, (column,)), row_form=True)

    def _column(self, instances: Any, n: int) -> Array | None:
        """Return ``n`` rows of fixed shape; None if they are something else."""
        if len(instances) != n or (self._shape and not has_shape(instances, self._shape)):
            return None
        column = self._numbers.take(instances)
        return None if column is None or column.size != n * self._row_size else column.reshape(n, *self._shape)

    def _read_ragged(self, instances: Any, n: int) -> PredictRequest | None:
        sizes = list(map(len, instances))
        if max(sizes) > self._max_length:  # type: ignore[operator]
            return None
        column = self._numbers.take(instances)
        if column is None or column.size != sum(sizes):
            return None
        rows: Column = [column[start:stop] for start, stop in pairwise(accumulate(sizes, initial=0))]
        return PredictRequest(Rows(n, (rows,), [(size,) for size in sizes]), row_form=True)
