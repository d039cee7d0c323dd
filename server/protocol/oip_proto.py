"""The Open Inference Protocol's ModelInfer in protocol buffers.

Tensors come as raw bytes, one for each input, or as typed contents inside the inputs, never both. An answer has them
as its request had; the parameter ``binary_data_output`` says otherwise. Raw bytes are not copied here: a request's
become views of it, an answer's are joined into it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from server.protocol.errors import MalformedRequest, WrongKeys
from server.protocol.oip_datatypes import DATATYPES
from server.protocol.oip_proto_answers import ANSWERS, InferForm
from server.protocol.oip_proto_inputs import InputTensor, input_tensor
from server.protocol.oip_proto_parameters import deadline_s, priority_of, read_parameter, read_requested_output
from server.protocol.proto_layout import Layout, Span, places
from server.protocol.proto_wire import LEN, fields, text
from server.protocol.rows import Array, Column, Encoded, Octets, Rows
from server.protocol.tensor_rows import read_tensors, selected_outputs
from server.protocol.wire import Asked

__all__ = ["InferCall", "InferRequest", "learn_infer"]

#: Fields of a request, which are listed on the event loop. An input takes two.
_MAX_FIELDS = 4_096

_MODEL_NAME, _MODEL_VERSION, _ID, _PARAMETERS, _INPUTS, _OUTPUTS, _RAW = (number << 3 | LEN for number in range(1, 8))
_INPUT_NAME, _INPUT_CONTENTS = 1 << 3 | LEN, 5 << 3 | LEN
#: Of typed contents.
_PACKED_FLOATS = frozenset({6 << 3 | LEN, 7 << 3 | LEN})


class InferCall:
    """A request of which nothing was read but whom it asks, under which id. It is the format that reads the rest."""

    __slots__ = ("_fields", "id", "model", "version")

    #: This protocol has none.
    label = None

    def __init__(self, body: bytes) -> None:
        """Errors: MalformedRequest."""
        model: Any = b""
        version: Any = b""
        id_: Any = b""
        self._fields = fields(memoryview(body), at_most=_MAX_FIELDS)
        for tag, value in self._fields:
            if tag == _MODEL_NAME:
                model = value
            elif tag == _MODEL_VERSION:
                version = value
            elif tag == _ID:
                id_ = value
        self.model = text(model, "model_name")
        #: None: the one that serves.
        self.version = text(version, "model_version") or None
        self.id = text(id_, "id").encode() if id_ else b""

    @staticmethod
    def n_parsed(body: Octets, _asked: Asked) -> int:
        """Return how many of a body's bytes may have to be looked at: all, where values are typed ones."""
        return len(body)

    def decode(self, body: Octets, asked: Asked, *, max_instances: int) -> InferRequest:  # noqa: ARG002 - it was listed
        """Read the tensors. Errors: every ProtocolError."""
        inputs: list[InputTensor] = []
        raw: list[memoryview] = []
        wanted: list[str] = []
        parameters: dict[str, Any] = {}
        for tag, value in self._fields:
            if isinstance(value, int):
                continue
            if tag == _INPUTS:
                inputs.append(input_tensor(value))
            elif tag == _RAW:
                raw.append(value)
            elif tag == _OUTPUTS:
                wanted.append(read_requested_output(value))
            elif tag == _PARAMETERS:
                parameters.update([read_parameter(value)])
        signature = asked.signature
        is_raw = bool(parameters.get("binary_data_output", raw))
        rows, is_bare = read_tensors(
            _arrays(inputs, raw), signature, max_instances=max_instances, words=DATATYPES, takes_bare=True
        )
        return InferRequest(
            rows=rows,
            form=ANSWERS.of(signature).form(
                selected_outputs(wanted, signature, words=DATATYPES), asked, is_bare=is_bare, is_raw=is_raw
            ),
            id_text=self.id or None,
            timeout_s=deadline_s(parameters),
            priority=priority_of(parameters),
        )


def _arrays(inputs: Sequence[InputTensor], raw: Sequence[memoryview]) -> dict[str, Array]:
    """Return the inputs' elements by their names."""
    if raw and len(raw) != len(inputs):
        raise MalformedRequest(
            f"{len(inputs)} inputs came with {len(raw)} raw_input_contents: send one for each, in their order"
        )
    arrays: dict[str, Array] = {}
    for index, tensor in enumerate(inputs):
        if tensor.name in arrays:
            raise WrongKeys(f"input {tensor.name!r} is there twice; send it once")
        if not raw:
            arrays[tensor.name] = tensor.from_contents()
        elif tensor.contents:
            raise MalformedRequest(
                f"input {tensor.name!r} has contents, and the request has raw_input_contents: send one of the two"
            )
        else:
            arrays[tensor.name] = tensor.from_raw(raw[index])
    return arrays


@dataclass(slots=True, eq=False, kw_only=True)
class InferRequest:
    """A request that was read."""

    rows: Rows
    form: InferForm
    #: Its id.
    id_text: bytes | None
    timeout_s: float | None
    priority: int | None = None

    def encode(self, outputs: Sequence[Column]) -> Encoded:
        """Write a ModelInferResponse. Errors: RaggedOutput."""
        return self.form.one(outputs, self.id_text)


def learn_infer(body: bytes) -> Layout | None:
    """Return the layout of a request, None where its values are not what memory holds, or it is none."""
    names: list[str] = []
    typed: list[Span] = []
    raw: list[Span] = []
    ids: list[Span] = []
    try:
        for tag, start, stop in places(body, 0, len(body)):
            if tag == _RAW:
                raw.append((start, stop))
            elif tag == _ID and stop > start:
                ids.append((start, stop))
            elif tag == _INPUTS:
                name, contents = _input_places(body, start, stop)
                names.append(name)
                typed += contents
    except ValueError:
        return None
    values = raw or typed
    if len(values) != len(names) or len(set(names)) < len(names) or (raw and typed) or len(ids) > 1:
        return None
    if any(start == stop for start, stop in values):
        return None
    return Layout(body, dict(zip(names, values, strict=True)), ids[0] if ids else None)


def _input_places(body: bytes, start: int, stop: int) -> tuple[str, list[Span]]:
    """Return an input's name, and where its typed contents have numbers as memory has them. Errors: ValueError."""
    name = ""
    found: list[Span] = []
    for tag, first, last in places(body, start, stop):
        if tag == _INPUT_NAME:
            name = body[first:last].decode()
        elif tag == _INPUT_CONTENTS:
            for inner, begin, end in places(body, first, last):
                if inner not in _PACKED_FLOATS:
                    raise ValueError("numbers that are not what memory holds")
                found.append((begin, end))
    return name, found
