"""Writes answers of the Open Inference Protocol.

Values are flat, as other servers write them; FP16 and BF16 only in binary, which the plan has seen to. What surrounds
the values is the same for all answers of so many rows where shapes are fixed, and is written once.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from server.protocol.dtypes import numpy_dtype
from server.protocol.oip_datatypes import datatype_of
from server.protocol.oip_plan import PlannedOutput
from server.protocol.row_octets import has_rows_of_one_size, row_octets
from server.protocol.rows import JSON, Array, Column, Encoded, Headers, LongBody
from server.protocol.tensor_rows import stacked
from server.protocol.tfs_encode import float_tokens, json_strings
from server.protocol.tfs_many import cells
from server.signature import STRING, ModelSignature, TensorSignature

__all__ = ["AnswerWriter", "OutputTexts"]

_JSON_ONLY = (JSON,)
_OCTETS = (b"content-type", b"application/octet-stream")
_LENGTH = struct.Struct("<I")
#: Values that are written from where they are, from so many bytes on.
_LONG_BYTES = 2**17
#: Numbers of rows for which what stands around them is kept.
_MAX_CONSTANTS = 256


class AnswerWriter:
    """Writes the answers to requests for the same outputs of one version, an ``AnswerForm``.

    ``is_single``: they have no dimension of examples.
    """

    __slots__ = ("_constants", "_frames", "_head", "_is_fixed", "_is_joined", "_is_single", "_outputs", "_tensors")

    def __init__(
        self,
        outputs: Sequence[PlannedOutput],
        signature: ModelSignature,
        *,
        is_single: bool,
        model: str,
        version: int,
    ) -> None:
        self._outputs = outputs
        self._is_single = is_single
        self._tensors = [signature.outputs[wanted.index] for wanted in outputs]
        about = {"model_name": model, "model_version": str(version)}
        self._head = json.dumps(about, separators=(",", ":"))[:-1].encode()
        self._is_fixed = all(
            tensor.is_fixed and not (wanted.is_binary and tensor.dtype == STRING)
            for wanted, tensor in zip(outputs, self._tensors, strict=True)
        )
        #: True: all answers of a batch can be cut out of it.
        self._is_joined = all(map(has_rows_of_one_size, self._tensors))
        #: By the number of rows, the text before, between and after the values where it is the same for every answer,
        #: and what ``frame`` returns.
        self._constants: dict[int, list[bytes]] = {}
        self._frames: dict[int, tuple[bytes, Headers]] = {}

    def one(self, outputs: Sequence[Column], id_text: bytes | None) -> Encoded:
        """Write an answer; ``outputs`` are in the signature's order, ``id_text`` is the id's JSON, None: there is none.

        Errors: RaggedOutput.
        """
        arrays = [
            self._array(outputs[wanted.index], tensor)
            for wanted, tensor in zip(self._outputs, self._tensors, strict=True)
        ]
        texts: list[bytes] = []
        octets: list[Any] = []
        for wanted, array in zip(self._outputs, arrays, strict=True):
            if wanted.is_binary:
                octets.append(_octets(array))
            else:
                texts.append(_text(array))
        if self._is_fixed:
            constants = self.constants(len(outputs[self._outputs[0].index]))
        else:
            sizes = [octet.nbytes if isinstance(octet, np.ndarray) else len(octet) for octet in octets]
            constants = self._surroundings([array.shape for array in arrays], sizes)
        return self.put_together(constants, texts, octets, id_text)

    def put_together(
        self, constants: Sequence[bytes], texts: Sequence[bytes], octets: Sequence[Any], id_text: bytes | None
    ) -> Encoded:
        """Return an answer of JSON ``texts`` and binary ``octets``, one of them for each output."""
        parts: list[Any] = [self._head, constants[0]]
        if id_text is not None:
            parts[1:1] = (b',"id":', id_text)
        for text, constant in zip(texts, constants[1:], strict=True):
            parts += (text, constant)
        if not octets:
            return b"".join(parts), _JSON_ONLY
        n_header = sum(map(len, parts))
        headers = (_OCTETS, (b"inference-header-content-length", b"%d" % n_header))
        if any(map(_is_long, octets)):
            return LongBody((b"".join(parts), *map(_in_bytes, octets))), headers
        return b"".join(parts + list(octets)), headers

    def texts(self, outputs: Sequence[Column], n_rows: int) -> OutputTexts | None:
        """Write the first ``n_rows`` of a batch's outputs; None: each answer is to be written by itself."""
        if not self._is_joined:
            return None
        written: list[list[bytes]] = []
        octets: list[tuple[memoryview, int]] = []
        for wanted, tensor in zip(self._outputs, self._tensors, strict=True):
            column = outputs[wanted.index]
            values = row_octets(column, tensor)
            if values is None:
                return None
            if wanted.is_binary:
                octets.append(values)
                continue
            texts = cells(column.reshape(len(column), -1), n_rows)  # type: ignore[union-attr]
            if texts is None:
                return None
            written.append(texts)
        return OutputTexts(self, written, octets)

    def constants(self, n: int) -> list[bytes]:
        """Return the text before, between and after the values of an answer of ``n`` rows of fixed shapes."""
        found = self._constants.get(n)
        if found is None:
            shapes = [
                tuple(dim for dim in tensor.shape if isinstance(dim, int))
                if self._is_single
                else (n, *(dim for dim in tensor.shape if isinstance(dim, int)))
                for tensor in self._tensors
            ]
            sizes = [
                math.prod(shape) * numpy_dtype(tensor.dtype).itemsize
                for wanted, tensor, shape in zip(self._outputs, self._tensors, shapes, strict=True)
                if wanted.is_binary
            ]
            if len(self._constants) >= _MAX_CONSTANTS:
                self._constants.clear()
            found = self._constants[n] = self._surroundings(shapes, sizes)
        return found

    def frame(self, n: int) -> tuple[bytes, Headers]:
        """Return what stands before the values of an answer of ``n`` rows that has no id, and its headers.

        It is all of its JSON where the values are all binary, and all up to the first ones where they are not.
        """
        found = self._frames.get(n)
        if found is None:
            if len(self._frames) >= _MAX_CONSTANTS:
                self._frames.clear()
            constants = self.constants(n)
            if len(constants) > 1:
                found = self._head + constants[0], _JSON_ONLY
            else:
                body, headers = self.put_together(constants, (), (b"",), None)
                found = bytes(body), headers
            self._frames[n] = found
        return found

    def _array(self, column: Column, tensor: TensorSignature) -> Array:
        """Return one array of all examples, or of the only one where the plan has no dimension for them."""
        array = stacked(column, tensor) if isinstance(column, list) else column
        if self._is_single:
            array = array[0, ...]
        dtype = numpy_dtype(tensor.dtype)
        if tensor.dtype != STRING and not (array.flags.c_contiguous and array.dtype == dtype):
            array = np.asarray(array, dtype, order="C")
        return array

    def _surroundings(self, shapes: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> list[bytes]:
        pieces = [',"outputs":[']
        left = iter(sizes)
        for place, (wanted, tensor, shape) in enumerate(zip(self._outputs, self._tensors, shapes, strict=True)):
            described: dict[str, Any] = {
                "name": tensor.name,
                "datatype": datatype_of(tensor.dtype),
                "shape": list(shape),
            }
            if wanted.is_binary:
                described["parameters"] = {"binary_data_size": next(left)}
            text = json.dumps(described, separators=(",", ":"))
            pieces[-1] += ("," if place else "") + (text if wanted.is_binary else text[:-1] + ',"data":')
            if not wanted.is_binary:
                pieces.append("}")
        pieces[-1] += "]}"
        return [piece.encode() for piece in pieces]


class OutputTexts:
    """The outputs of a batch, ready to be cut into answers: of each row its JSON, or its bytes among all."""

    __slots__ = ("_octets", "_texts", "_writer")

    def __init__(
        self, writer: AnswerWriter, texts: Sequence[list[bytes]], octets: Sequence[tuple[memoryview, int]]
    ) -> None:
        self._writer = writer
        self._texts = texts
        self._octets = octets

    def answer(self, start: int, stop: int, id_text: bytes | None) -> Encoded:
        """Return the answer that has these rows."""
        n = stop - start
        if id_text is None and len(self._texts) + len(self._octets) == 1:
            before, headers = self._writer.frame(n)
            if self._octets:
                values, size = self._octets[0]
                return b"".join((before, values[start * size : stop * size])), headers
            rows = self._texts[0]
            text = rows[start] if n == 1 else b",".join(rows[start:stop])
            return b"%b[%b]%b" % (before, text, self._writer.constants(n)[1]), headers
        octets = [values[start * size : stop * size] for values, size in self._octets]
        texts = [b"[%b]" % (rows[start] if n == 1 else b",".join(rows[start:stop])) for rows in self._texts]
        return self._writer.put_together(self._writer.constants(n), texts, octets, id_text)


def _octets(array: Array) -> Any:
    """Return the bytes of an array, or something that has them: little-endian and row-major, as memory is."""
    if array.dtype.kind in "OSU":
        elements = array.reshape(-1).tolist()
        raw = [
            element.encode("utf-8", "surrogatepass") if isinstance(element, str) else element for element in elements
        ]
        return b"".join(part for element in raw for part in (_LENGTH.pack(len(element)), element))
    # A buffer has no name for bfloat16.
    return array if array.dtype.isbuiltin == 1 else array.reshape(-1).view(np.uint8)


def _is_long(octets: Any) -> bool:
    """Return whether a copy of values costs more than what they keep in memory until they have left: their batch."""
    if not isinstance(octets, np.ndarray) or octets.nbytes < _LONG_BYTES:
        return False
    whole = octets.base if isinstance(octets.base, np.ndarray) else octets
    return whole.nbytes <= 2 * octets.nbytes


def _in_bytes(octets: Any) -> bytes | memoryview:
    return octets if isinstance(octets, bytes) else octets.reshape(-1).view(np.uint8).data


def _text(array: Array) -> bytes:
    flat = array.reshape(-1)
    if array.dtype.kind in "OSU":
        return orjson.dumps(json_strings(flat.tolist(), in_base64=False))
    text = orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    return float_tokens(flat) if b"null" in text else text
