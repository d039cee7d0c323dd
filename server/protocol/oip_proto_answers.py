"""Answers of the Open Inference Protocol in protocol buffers: outputs to the bytes of a ModelInferResponse."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from server.protocol.by_signature import BySignature
from server.protocol.byte_strings import write_byte_strings
from server.protocol.dtypes import numpy_dtype
from server.protocol.oip_datatypes import DATATYPES
from server.protocol.oip_proto_inputs import CONTENTS
from server.protocol.proto_wire import Piece, binary, head, joined, write_varints
from server.protocol.row_octets import CutAnswers, has_rows_of_one_size, octets_of_all
from server.protocol.rows import Array, Column, Encoded
from server.protocol.tensor_rows import stacked
from server.protocol.wire import Asked
from server.signature import ModelSignature

__all__ = ["ANSWERS", "AnswerWriter", "InferForm"]

_MODEL_NAME, _MODEL_VERSION, _ID, _OUTPUTS, _RAW = 1, 2, 3, 5, 6
_NAME, _DATATYPE, _SHAPE, _CONTENTS = 1, 2, 3, 5

#: Descriptions of answers that are kept. They differ by the number of rows and by lengths.
_MAX_DESCRIPTIONS = 256

#: Dtypes whose typed contents are the bytes that memory holds.
_AS_IN_MEMORY = frozenset({"float32", "float64"})

_Shape = tuple[int, ...]


class AnswerWriter:
    """Writes the answers of one signature; what they have in common is written once."""

    __slots__ = ("_descriptions", "_forms", "signature")

    def __init__(self, signature: ModelSignature) -> None:
        self.signature = signature
        self._descriptions: dict[tuple[tuple[int, ...], tuple[_Shape, ...]], bytes] = {}
        self._forms: dict[tuple[object, ...], InferForm] = {}

    def form(self, wanted: tuple[int, ...], asked: Asked, *, is_bare: bool, is_raw: bool) -> InferForm:
        """Return how answers are written that have the outputs at the places ``wanted``, the same object each time."""
        key = wanted, asked.name, asked.version, is_bare, is_raw
        found = self._forms.get(key)
        if found is None:
            if len(self._forms) >= _MAX_DESCRIPTIONS:
                self._forms.clear()
            found = self._forms[key] = InferForm(self, wanted, asked, is_bare=is_bare, is_raw=is_raw)
        return found

    def write(
        self, arrays: Sequence[Array], wanted: tuple[int, ...], address: bytes, *, id_: bytes | None, is_raw: bool
    ) -> bytes:
        """Write a ModelInferResponse. ``arrays`` are the outputs at the places ``wanted``."""
        pieces: list[Piece] = [address]
        if id_:
            pieces += (_id_head(id_), id_)
        outputs = self.signature.outputs
        if is_raw:
            pieces.append(self._description(wanted, tuple(array.shape for array in arrays)))
            for array in arrays:
                raw = write_byte_strings(array) if array.dtype == object else binary(array)
                pieces += (head(_RAW, len(raw)), raw)
        else:
            for index, array in zip(wanted, arrays, strict=True):
                contents = _contents(array, outputs[index].dtype)
                pieces.append(joined(_OUTPUTS, (self._described(index, array.shape), joined(_CONTENTS, contents))))
        return b"".join(pieces)

    def around(self, wanted: tuple[int, ...], shapes: tuple[_Shape, ...], *, is_raw: bool) -> list[bytes]:
        """Return what stands before the bytes of each output's numbers, and behind the last, without address and id."""
        outputs = self.signature.outputs
        pieces: list[bytes] = []
        for index, shape in zip(wanted, shapes, strict=True):
            dtype = outputs[index].dtype
            n_bytes = math.prod(shape) * numpy_dtype(dtype).itemsize
            if is_raw:
                pieces.append(head(_RAW, n_bytes))
                continue
            number, _ = CONTENTS[DATATYPES[dtype]]
            described, values = self._described(index, shape), head(number, n_bytes)
            contents = head(_CONTENTS, len(values) + n_bytes)
            n_output = len(described) + len(contents) + len(values) + n_bytes
            pieces.append(head(_OUTPUTS, n_output) + described + contents + values)
        if is_raw:
            pieces[0] = self._description(wanted, shapes) + pieces[0]
        return [*pieces, b""]

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


class InferForm:
    """Writes answers to requests for the same outputs of one version, an ``AnswerForm``.

    ``is_bare``: they have no dimension of examples. ``is_raw``: their contents are raw, if they can be.
    """

    __slots__ = ("_address", "_around", "_is_bare", "_is_cut", "_is_raw", "_wanted", "_writer")

    def __init__(
        self, writer: AnswerWriter, wanted: tuple[int, ...], asked: Asked, *, is_bare: bool, is_raw: bool
    ) -> None:
        self._writer = writer
        self._wanted = wanted
        self._is_bare = is_bare
        outputs = [writer.signature.outputs[index] for index in wanted]
        self._is_raw = is_raw or any(DATATYPES[tensor.dtype] not in CONTENTS for tensor in outputs)
        #: The fields that say who answers.
        self._address = joined(_MODEL_NAME, [asked.name.encode()]) + joined(
            _MODEL_VERSION, [str(asked.version).encode()]
        )
        #: True: each answer of a batch can be cut out of its memory.
        self._is_cut = all(
            has_rows_of_one_size(tensor) and (self._is_raw or tensor.dtype in _AS_IN_MEMORY) for tensor in outputs
        )
        self._around: dict[int, list[bytes]] = {}

    def one(self, outputs: Sequence[Column], id_text: bytes | None) -> Encoded:
        """Write a ModelInferResponse. Errors: RaggedOutput."""
        signature = self._writer.signature
        arrays = [stacked(outputs[index], signature.outputs[index]) for index in self._wanted]
        if self._is_bare:
            arrays = [array.reshape(array.shape[1:]) for array in arrays]
        return self._writer.write(arrays, self._wanted, self._address, id_=id_text, is_raw=self._is_raw), ()

    def texts(self, outputs: Sequence[Column], _n_rows: int) -> CutAnswers | None:
        """Return a batch's outputs ready to be cut into answers; None: each answer is to be written by itself."""
        if not self._is_cut:
            return None
        kept = octets_of_all(outputs, self._writer.signature.outputs, self._wanted)
        if kept is None:
            return None
        return CutAnswers(kept, self._surroundings, address=self._address, id_head=_id_head)

    def _surroundings(self, n: int) -> list[bytes]:
        found = self._around.get(n)
        if found is None:
            if len(self._around) >= _MAX_DESCRIPTIONS:
                self._around.clear()
            tensors = self._writer.signature.outputs
            rows = () if self._is_bare else (n,)
            shapes = tuple((*rows, *tensors[index].padded_shape({})) for index in self._wanted)
            found = self._around[n] = self._writer.around(self._wanted, shapes, is_raw=self._is_raw)
        return found


def _id_head(id_: bytes) -> bytes:
    return head(_ID, len(id_))


def _contents(array: Array, dtype: str) -> list[Piece]:
    """Return the typed contents of an output."""
    number, _ = CONTENTS[DATATYPES[dtype]]
    if array.dtype == object:
        return [piece for value in array.reshape(-1).tolist() for piece in (head(number, len(value)), value)]
    packed = binary(array) if array.dtype.kind == "f" else write_varints(array)
    return [head(number, len(packed)), packed] if len(packed) else []
