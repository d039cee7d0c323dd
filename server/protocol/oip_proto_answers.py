"""Answers of the Open Inference Protocol in protocol buffers: outputs to the bytes of a ModelInferResponse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from server.protocol.by_signature import BySignature
from server.protocol.byte_strings import write_byte_strings
from server.protocol.oip_datatypes import DATATYPES
from server.protocol.oip_proto_inputs import CONTENTS
from server.protocol.proto_wire import Piece, binary, head, joined, write_varints
from server.protocol.rows import Array
from server.protocol.wire import Asked
from server.signature import ModelSignature

__all__ = ["ANSWERS", "AnswerWriter"]

_MODEL_NAME, _MODEL_VERSION, _ID, _OUTPUTS, _RAW = 1, 2, 3, 5, 6
_NAME, _DATATYPE, _SHAPE, _CONTENTS = 1, 2, 3, 5

#: Descriptions of answers that are kept. They differ by the number of rows and by lengths.
_MAX_DESCRIPTIONS = 256

_Shape = tuple[int, ...]


class AnswerWriter:
    """Writes the answers of one signature; what they have in common is written once."""

    __slots__ = ("_address", "_descriptions", "signature")

    def __init__(self, signature: ModelSignature) -> None:
        self.signature = signature
        self._address: tuple[str, int, bytes] = ("", 0, b"")
        self._descriptions: dict[tuple[tuple[int, ...], tuple[_Shape, ...]], bytes] = {}

    def write(
        self, arrays: Sequence[Array], wanted: tuple[int, ...], asked: Asked, *, id_: bytes, is_raw: bool
    ) -> bytes:
        """Write a ModelInferResponse. ``arrays`` are the outputs at the places ``wanted``."""
        pieces: list[Piece] = [self._addressed(asked)]
        if id_:
            pieces += (head(_ID, len(id_)), id_)
        outputs = self.signature.outputs
        if is_raw or any(DATATYPES[outputs[index].dtype] not in CONTENTS for index in wanted):
            pieces.append(self._description(wanted, tuple(array.shape for array in arrays)))
            for array in arrays:
                raw = write_byte_strings(array) if array.dtype == object else binary(array)
                pieces += (head(_RAW, len(raw)), raw)
        else:
            for index, array in zip(wanted, arrays, strict=True):
                contents = _contents(array, outputs[index].dtype)
                pieces.append(joined(_OUTPUTS, (self._described(index, array.shape), joined(_CONTENTS, contents))))
        return b"".join(pieces)

    def _addressed(self, asked: Asked) -> bytes:
        """Return the fields that say who answers."""
        name, version, written = self._address
        if name != asked.name or version != asked.version:
            written = joined(_MODEL_NAME, [asked.name.encode()]) + joined(_MODEL_VERSION, [str(asked.version).encode()])
            self._address = (asked.name, asked.version, written)
        return written

    def _described(self, index: int, shape: _Shape) -> bytes:
        """Return an output tensor without its contents."""
        tensor = self.signature.outputs[index]
        sizes = write_varints(np.array(shape, np.int64))
        return (
            joined(_NAME, [tensor.name.encode()])
            + joined(_DATATYPE, [DATATYPES[tensor.dtype].encode()])
            + (joined(_SHAPE, [sizes]) if sizes else b"")
        )

    def _description(self, wanted: tuple[int, ...], shapes: tuple[_Shape, ...]) -> bytes:
        """Return all output tensors of an answer whose contents are raw."""
        found = self._descriptions.get((wanted, shapes))
        if found is None:
            if len(self._descriptions) >= _MAX_DESCRIPTIONS:
                self._descriptions.clear()
            found = self._descriptions[wanted, shapes] = b"".join(
                joined(_OUTPUTS, [self._described(index, shape)]) for index, shape in zip(wanted, shapes, strict=True)
            )
        return found


ANSWERS = BySignature(AnswerWriter)


def _contents(array: Array, dtype: str) -> list[Piece]:
    """Return the typed contents of an output."""
    number, _ = CONTENTS[DATATYPES[dtype]]
    if array.dtype == object:
        return [piece for value in array.reshape(-1).tolist() for piece in (head(number, len(value)), value)]
    packed = binary(array) if array.dtype.kind == "f" else write_varints(array)
    return [head(number, len(packed)), packed] if len(packed) else []
