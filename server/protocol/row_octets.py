"""A batch's numbers as bytes, from which each answer takes its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from server.protocol.dtypes import numpy_dtype
from server.protocol.rows import Column, Encoded
from server.signature import STRING, TensorSignature

__all__ = ["CutAnswers", "has_rows_of_one_size", "octets_of_all", "row_octets"]


def has_rows_of_one_size(tensor: TensorSignature) -> bool:
    """Return whether all rows have the same number of bytes, and any."""
    return tensor.is_fixed and tensor.dtype != STRING and 0 not in tensor.shape


def row_octets(column: Column, tensor: TensorSignature) -> tuple[memoryview, int] | None:
    """Return an output's bytes without copying them, and how many a row has; None where they don't lie so in memory."""
    dtype = numpy_dtype(tensor.dtype)
    if isinstance(column, list) or column.dtype != dtype or not column.flags.c_contiguous or not column.size:
        return None
    # By way of uint8: a buffer has no name for bfloat16.
    return column.reshape(-1).view(np.uint8).data, column.nbytes // len(column)


def octets_of_all(
    outputs: Sequence[Column], tensors: Sequence[TensorSignature], wanted: Sequence[int]
) -> list[tuple[memoryview, int]] | None:
    """Return ``row_octets`` of the outputs that are wanted; None if one of them has none."""
    found = [row_octets(outputs[index], tensors[index]) for index in wanted]
    kept = [each for each in found if each is not None]
    return kept if len(kept) == len(found) else None


class CutAnswers:
    """The outputs of a batch of which answers are cut: what stands around the values is the same for so many rows.

    ``around`` returns, for a number of rows, what stands before each output's values, and behind the last.
    """

    __slots__ = ("_address", "_around", "_id_head", "_octets")

    def __init__(
        self,
        octets: Sequence[tuple[memoryview, int]],
        around: Callable[[int], Sequence[bytes]],
        *,
        address: bytes = b"",
        id_head: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._octets = octets
        self._around = around
        self._address = address
        self._id_head = id_head

    def answer(self, start: int, stop: int, id_text: bytes | None) -> Encoded:
        """Return the answer that has these rows."""
        around = self._around(stop - start)
        if len(self._octets) == 1 and id_text is None:
            values, size = self._octets[0]
            return b"".join((self._address, around[0], values[start * size : stop * size], around[1])), ()
        parts: list[bytes | memoryview] = [self._address]
        if id_text is not None and self._id_head is not None:
            parts += (self._id_head(id_text), id_text)
        for before, (values, size) in zip(around, self._octets, strict=False):
            parts += (before, values[start * size : stop * size])
        parts.append(around[-1])
        return b"".join(parts), ()
