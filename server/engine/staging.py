"""Copying rows into the memory that a compiled graph reads: once, and nothing else is done to them.

A group's buckets share one array for each input, as long as the largest bucket; a smaller bucket is its first
rows. Rows that no example fills repeat row 0 of the same batch, so that no model sees values that no caller sent,
and rows of an earlier batch never show. Only the thread that runs the group's batches touches it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from server.batching import Batch, Span
from server.signature import STRING, ModelSignature, TensorSignature

__all__ = ["Staging"]

#: Bytes. TensorFlow reads an array where it is only if it begins at such an address, and else copies it each time.
#: Source: EIGEN_MAX_ALIGN_BYTES, tensorflow/c/tf_tensor.cc.
_ALIGNED_TO = 64


class Staging:
    """The input arrays of one entry point at one padded length.

    Shapes: for each input ``[largest bucket, *padded shape]``, then for each length axis that the function is told
        ``[largest bucket]``.
    """

    def __init__(self, signature: ModelSignature, lengths: tuple[int, ...], buckets: Sequence[int]) -> None:
        sizes = {axis.name: size for axis, size in zip(signature.axes, lengths, strict=True)}
        largest = max(buckets)
        self._inputs = [
            (index, _empty(tensor, largest, sizes), tensor) for index, tensor in enumerate(signature.inputs)
        ]
        self._told = [
            (index, np.zeros(largest, axis.length_dtype))
            for index, axis in enumerate(signature.axes)
            if axis.length_input is not None
        ]
        self._arrays = [array for _, array, _ in self._inputs] + [array for _, array in self._told]
        #: What a bucket's graph is called with: views of the arrays, in the order of ``names``.
        self._views = {bucket: [array[:bucket] for array in self._arrays] for bucket in buckets}

    @staticmethod
    def names(signature: ModelSignature) -> list[str]:
        """Return the input names of a compiled graph in staging order."""
        return [tensor.name for tensor in signature.inputs] + [
            axis.length_input for axis in signature.axes if axis.length_input is not None
        ]

    def blank(self, bucket: int) -> list[np.ndarray[Any, Any]]:
        """Return a bucket's arrays as they are: zeros at first, for warming."""
        return self._views[bucket]

    def fill(self, batch: Batch) -> list[np.ndarray[Any, Any]]:
        """Copy the batch's rows in and return its bucket's arrays. Payloads are ``Rows``."""
        n_rows, bucket = batch.n_rows, batch.bucket
        for index, array, tensor in self._inputs:
            if tensor.is_fixed:
                _copy_fixed(array, index, batch.spans, n_rows)
            else:
                _copy_padded(array, index, batch.spans)
            if n_rows < bucket:
                array[n_rows:bucket] = array[0]
        for index, array in self._told:
            row = 0
            for item, start, stop in batch.spans:
                first = item.first
                for true in item.payload.lengths[first + start : first + stop]:  # type: ignore[attr-defined]
                    array[row] = true[index]
                    row += 1
            array[n_rows:bucket] = array[0]
        return self._views[bucket]

    def owned(self, outputs: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Copy the outputs that lie in staging memory: the next batch would overwrite them.

        TensorFlow may hand an input's own memory through a graph that returns it unchanged.
        """
        return [
            output.copy() if any(np.may_share_memory(output, array) for array in self._arrays) else output
            for output in outputs
        ]


def _empty(tensor: TensorSignature, rows: int, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
    shape = (rows, *tensor.padded_shape(sizes))
    if tensor.dtype == STRING:
        return np.full(shape, b"", dtype=object)
    return _aligned(shape, _numpy_dtype(tensor.dtype))


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    n_bytes = math.prod(shape) * dtype.itemsize
    room = np.zeros(n_bytes + _ALIGNED_TO, np.uint8)
    start = -room.ctypes.data % _ALIGNED_TO
    return room[start : start + n_bytes].view(dtype).reshape(shape)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes  # registers the dtype with NumPy; TensorFlow brings it

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


def _copy_fixed(array: np.ndarray[Any, Any], index: int, spans: Sequence[Span], n_rows: int) -> None:
    blocks = [payload.columns[index][start:stop] for payload, start, stop in _runs(spans)]  # type: ignore[attr-defined]
    if len(blocks) == 1:
        array[:n_rows] = blocks[0]
    else:
        # One call for all rows: a slice assignment for each costs four times as much.
        np.concatenate(blocks, out=array[:n_rows])


def _runs(spans: Sequence[Span]) -> list[tuple[object, int, int]]:
    """Return the payloads of a batch in row order, each with the rows of it that follow each other there."""
    runs: list[tuple[object, int, int]] = []
    payload: object = None
    begin = end = 0
    for item, start, stop in spans:
        first = item.first
        if item.payload is payload and first + start == end:
            end = first + stop
            continue
        if payload is not None:
            runs.append((payload, begin, end))
        payload, begin, end = item.payload, first + start, first + stop
    runs.append((payload, begin, end))
    return runs


def _copy_padded(array: np.ndarray[Any, Any], index: int, spans: Sequence[Span]) -> None:
    blank: Any = b"" if array.dtype == object else 0
    row = 0
    for item, start, stop in spans:
        first = item.first
        for value in item.payload.columns[index][first + start : first + stop]:  # type: ignore[attr-defined]
            target = array[row]
            if value.shape != target.shape:
                target[...] = blank
                target = target[tuple(map(slice, value.shape))]
            target[...] = value
            row += 1
