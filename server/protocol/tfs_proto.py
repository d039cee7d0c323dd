"""TensorFlow Serving's Predict in protocol buffers: request bytes to rows, outputs to answer bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from server.protocol.by_signature import BySignature
from server.protocol.dtypes import numpy_dtype
from server.protocol.errors import MalformedRequest, UnknownSignature, WrongKeys
from server.protocol.messages import message_class
from server.protocol.proto_layout import Layout, Span, places
from server.protocol.proto_wire import LEN, Piece, fields, head, joined, text
from server.protocol.row_octets import CutAnswers, has_rows_of_one_size, octets_of_all
from server.protocol.rows import Array, Column, Encoded, Octets, Rows
from server.protocol.tensor_rows import read_tensors, selected_outputs, stacked
from server.protocol.tfs_dtypes import DATA_TYPES
from server.protocol.tfs_proto_tensors import read_tensor_proto, tensor_proto_head, values_head, write_values
from server.protocol.wire import Asked
from server.signature import ModelSignature

__all__ = ["PredictMessage", "PredictedMessage", "learn_predict", "read_model_spec"]

#: Fields of a request, which are listed on the event loop.
_MAX_FIELDS = 4_096

_SPEC, _INPUTS, _FILTER = (number << 3 | LEN for number in range(1, 4))
_KEY, _VALUE = 1 << 3 | LEN, 2 << 3 | LEN

#: What holds a tensor's numbers as memory does: its content, packed floats and doubles.
_AS_IN_MEMORY = frozenset({4 << 3 | LEN, 5 << 3 | LEN, 6 << 3 | LEN})
#: Forms of answers that are kept, and numbers of rows of each.
_MAX_FORMS = 256

#: The one signature that a model has here.
_SIGNATURE = "serving_default"


def read_model_spec(spec: Any) -> tuple[str, str | None, str | None]:
    """Return the model that a ModelSpec names, its version and its label.

    Errors: MalformedRequest; UnknownSignature.
    """
    if not spec.name:
        raise MalformedRequest("model_spec.name is missing: say which model is asked")
    if spec.signature_name not in ("", _SIGNATURE):
        raise UnknownSignature(spec.signature_name)
    choice = spec.WhichOneof("version_choice")
    version = str(spec.version.value) if choice == "version" else None
    return spec.name, version, spec.version_label if choice == "version_label" else None


class PredictMessage:
    """A request of which nothing was read but whom it asks. It is the format that reads the rest."""

    __slots__ = ("_filter", "_inputs", "label", "model", "version")

    def __init__(self, body: bytes) -> None:
        """Errors: MalformedRequest; UnknownSignature."""
        specs: list[Any] = []
        self._inputs: list[memoryview] = []
        self._filter: list[str] = []
        for tag, value in fields(memoryview(body), at_most=_MAX_FIELDS):
            if tag == _INPUTS:
                self._inputs.append(value)  # type: ignore[arg-type]
            elif tag == _SPEC:
                specs.append(value)
            elif tag == _FILTER:
                self._filter.append(text(value, "an output's name"))
        try:
            spec = message_class("tensorflow.serving.ModelSpec").FromString(b"".join(specs))
        except DecodeError:
            raise MalformedRequest("model_spec can't be read") from None
        self.model, self.version, self.label = read_model_spec(spec)

    @staticmethod
    def n_parsed(body: Octets, _asked: Asked) -> int:
        """Return how many of a body's bytes may have to be looked at: all, where values are typed ones."""
        return len(body)

    def decode(self, body: Octets, asked: Asked, *, max_instances: int) -> PredictedMessage:  # noqa: ARG002 - it was listed
        """Read the tensors. Errors: every ProtocolError."""
        arrays: dict[str, Array] = {}
        for entry in self._inputs:
            key: Any = b""
            tensor: Any = memoryview(b"")
            for tag, value in fields(entry):
                if tag == _KEY:
                    key = value
                elif tag == _VALUE:
                    # Several are one, as everywhere in protocol buffers.
                    tensor = memoryview(bytes(tensor) + bytes(value)) if tensor else value
            name = text(key, "an input's name")
            if name in arrays:
                raise WrongKeys(f"input {name!r} is there twice; send it once")
            arrays[name] = read_tensor_proto(tensor, name)
        signature = asked.signature
        rows, _ = read_tensors(arrays, signature, max_instances=max_instances, words=DATA_TYPES)
        wanted = selected_outputs(self._filter, signature, words=DATA_TYPES)
        return PredictedMessage(rows, _ANSWERS.of(signature).form(wanted, asked))


@dataclass(slots=True, eq=False)
class PredictedMessage:
    """A request that was read."""

    rows: Rows
    form: PredictForm
    id_text: bytes | None = None
    timeout_s: float | None = None
    priority: int | None = None

    def encode(self, outputs: Sequence[Column]) -> Encoded:
        """Write a PredictResponse. Errors: RaggedOutput."""
        return self.form.one(outputs, None)


def learn_predict(body: bytes) -> Layout | None:
    """Return the layout of a request, None where its values are not what memory holds, or it is none."""
    values: dict[str, Span] = {}
    try:
        for tag, start, stop in places(body, 0, len(body)):
            if tag == _INPUTS:
                name, span = _input_place(body, start, stop)
                if name in values:
                    return None
                values[name] = span
    except ValueError:
        return None
    return Layout(body, values, None) if values else None


def _input_place(body: bytes, start: int, stop: int) -> tuple[str, Span]:
    """Return an input's name, and where its numbers are. Errors: ValueError if not in one place, as memory has them."""
    name = ""
    found: list[Span] = []
    for tag, first, last in places(body, start, stop):
        if tag == _KEY:
            name = body[first:last].decode()
        elif tag == _VALUE:
            found += [(begin, end) for inner, begin, end in places(body, first, last) if inner in _AS_IN_MEMORY]
    if len(found) != 1 or found[0][0] == found[0][1]:
        raise ValueError("its numbers are not in one place")
    return name, found[0]


class PredictForm:
    """Writes answers with the outputs at the places ``wanted`` of one version, an ``AnswerForm``."""

    __slots__ = ("_around", "_is_cut", "_spec", "_wanted", "_writer")

    def __init__(self, writer: _AnswerWriter, wanted: tuple[int, ...], asked: Asked) -> None:
        self._writer = writer
        self._wanted = wanted
        spec = message_class("tensorflow.serving.ModelSpec")(name=asked.name, signature_name=_SIGNATURE)
        spec.version.value = asked.version
        #: The field that says who answers.
        self._spec = joined(2, [spec.SerializeToString()])
        outputs = [writer.signature.outputs[index] for index in wanted]
        #: True: each answer of a batch can be cut out of its memory.
        self._is_cut = all(
            has_rows_of_one_size(tensor) and tensor.dtype in ("float32", "float64") for tensor in outputs
        )
        self._around: dict[int, list[bytes]] = {}

    def one(self, outputs: Sequence[Column], _id_text: bytes | None) -> Encoded:
        """Write a PredictResponse. Errors: RaggedOutput."""
        pieces: list[Piece] = []
        for index in self._wanted:
            array = stacked(outputs[index], self._writer.signature.outputs[index])
            values = write_values(array, self._writer.signature.outputs[index].dtype)
            pieces += (self._writer.before(index, array.shape, sum(map(len, values))), *values)
        pieces.append(self._spec)
        return b"".join(pieces), ()

    def texts(self, outputs: Sequence[Column], _n_rows: int) -> CutAnswers | None:
        """Return a batch's outputs ready to be cut into answers; None: each answer is to be written by itself."""
        if not self._is_cut:
            return None
        kept = octets_of_all(outputs, self._writer.signature.outputs, self._wanted)
        return None if kept is None else CutAnswers(kept, self._surroundings)

    def _surroundings(self, n: int) -> list[bytes]:
        found = self._around.get(n)
        if found is None:
            if len(self._around) >= _MAX_FORMS:
                self._around.clear()
            found = self._around[n] = [self._before(index, n) for index in self._wanted] + [self._spec]
        return found

    def _before(self, index: int, n: int) -> bytes:
        tensor = self._writer.signature.outputs[index]
        shape = (n, *tensor.padded_shape({}))
        n_bytes = math.prod(shape) * numpy_dtype(tensor.dtype).itemsize
        values = values_head(tensor.dtype, n_bytes)
        return self._writer.before(index, shape, len(values) + n_bytes) + values


class _AnswerWriter:
    """What the answers of a signature have in common, written once."""

    __slots__ = ("_forms", "_keys", "signature")

    def __init__(self, signature: ModelSignature) -> None:
        self.signature = signature
        self._keys = [joined(1, [tensor.name.encode()]) for tensor in signature.outputs]
        self._forms: dict[tuple[object, ...], PredictForm] = {}

    def form(self, wanted: tuple[int, ...], asked: Asked) -> PredictForm:
        """Return how answers are written that have certain outputs, the same object each time."""
        key = wanted, asked.name, asked.version
        found = self._forms.get(key)
        if found is None:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            found = self._forms[key] = PredictForm(self, wanted, asked)
        return found

    def before(self, index: int, shape: tuple[int, ...], n_values: int) -> bytes:
        """Return what an entry of the map of outputs has before the ``n_values`` bytes of its values."""
        described = tensor_proto_head(self.signature.outputs[index].dtype, shape)
        before = self._keys[index] + head(2, len(described) + n_values) + described
        return head(1, len(before) + n_values) + before


_ANSWERS = BySignature(_AnswerWriter)
