"""Writes answers of the Open Inference Protocol.

Values are flat, as other servers write them; FP16 and BF16 only in binary, which the plan has seen to. What surrounds
the values is the same for all answers of one plan where shapes are fixed, and is written once.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from server.protocol.dtypes import numpy_dtype
from server.protocol.oip_datatypes import datatype_of
from server.protocol.oip_plan import Plan
from server.protocol.rows import JSON, Array, Column, Encoded
from server.protocol.tensor_rows import stacked
from server.protocol.tfs_encode import float_tokens, json_strings
from server.signature import STRING, ModelSignature, TensorSignature

__all__ = ["AnswerWriter"]

_JSON_ONLY = (JSON,)
_OCTETS = (b"content-type", b"application/octet-stream")
_LENGTH = struct.Struct("<I")


class AnswerWriter:
    """Writes the answers to one plan's requests of one version."""

    __slots__ = ("_constants", "_head", "_is_fixed", "_is_single", "_outputs", "_tensors")

    def __init__(self, plan: Plan, signature: ModelSignature, *, model: str, version: int) -> None:
        self._outputs = plan.outputs
        self._is_single = plan.is_single
        self._tensors = [signature.outputs[wanted.index] for wanted in plan.outputs]
        about = {"model_name": model, "model_version": str(version)}
        self._head = json.dumps(about, separators=(",", ":"))[:-1].encode()
        self._is_fixed = all(
            tensor.is_fixed and not (wanted.is_binary and tensor.dtype == STRING)
            for wanted, tensor in zip(plan.outputs, self._tensors, strict=True)
        )
        #: The text before, between and after the values, once it was written and is the same for every answer.
        self._constants: list[bytes] | None = None

    def write(self, outputs: Sequence[Column], *, id_text: bytes | None) -> Encoded:
        """Write an answer; ``outputs`` are in the signature's order, ``id_text`` is the id's JSON, None: there is none.

        Errors: RaggedOutput.
        """
        arrays: list[Array] = []
        texts: list[bytes] = []
        octets: list[Any] = []
        for wanted, tensor in zip(self._outputs, self._tensors, strict=True):
            array = self._array(outputs[wanted.index], tensor)
            arrays.append(array)
            if wanted.is_binary:
                octets.append(_octets(array))
            else:
                texts.append(_text(array))
        constants = self._constants
        if constants is None:
            constants = self._surroundings(arrays, octets)
            if self._is_fixed:
                self._constants = constants
        parts: list[Any] = [self._head, constants[0]]
        if id_text is not None:
            parts[1:1] = (b',"id":', id_text)
        for text, constant in zip(texts, constants[1:], strict=True):
            parts += (text, constant)
        if not octets:
            return b"".join(parts), _JSON_ONLY
        n_header = sum(map(len, parts))
        return b"".join(parts + octets), (_OCTETS, (b"inference-header-content-length", b"%d" % n_header))

    def _array(self, column: Column, tensor: TensorSignature) -> Array:
        """Return one array of all examples, or of the only one where the plan has no dimension for them."""
        array = stacked(column, tensor) if isinstance(column, list) else column
        if self._is_single:
            array = array[0, ...]
        dtype = numpy_dtype(tensor.dtype)
        if tensor.dtype != STRING and not (array.flags.c_contiguous and array.dtype == dtype):
            array = np.asarray(array, dtype, order="C")
        return array

    def _surroundings(self, arrays: Sequence[Array], octets: Sequence[Any]) -> list[bytes]:
        pieces = [',"outputs":[']
        sizes = (octet.nbytes if isinstance(octet, np.ndarray) else len(octet) for octet in octets)
        for place, (wanted, tensor, array) in enumerate(zip(self._outputs, self._tensors, arrays, strict=True)):
            described: dict[str, Any] = {
                "name": tensor.name,
                "datatype": datatype_of(tensor.dtype),
                "shape": list(array.shape),
            }
            if wanted.is_binary:
                described["parameters"] = {"binary_data_size": next(sizes)}
            text = json.dumps(described, separators=(",", ":"))
            pieces[-1] += ("," if place else "") + (text if wanted.is_binary else text[:-1] + ',"data":')
            if not wanted.is_binary:
                pieces.append("}")
        pieces[-1] += "]}"
        return [piece.encode() for piece in pieces]


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


def _text(array: Array) -> bytes:
    flat = array.reshape(-1)
    if array.dtype.kind in "OSU":
        return orjson.dumps(json_strings(flat.tolist(), in_base64=False))
    text = orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    return float_tokens(flat) if b"null" in text else text
