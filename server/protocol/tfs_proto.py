"""TensorFlow Serving's Predict in protocol buffers: request bytes to rows, outputs to answer bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from server.protocol.by_signature import BySignature
from server.protocol.errors import MalformedRequest, UnknownSignature, WrongKeys
from server.protocol.messages import message_class
from server.protocol.proto_wire import LEN, Piece, fields, head, joined, text
from server.protocol.rows import Array, Column, Encoded, Octets, Rows
from server.protocol.tensor_rows import read_tensors, selected_outputs, stacked
from server.protocol.tfs_dtypes import DATA_TYPES
from server.protocol.tfs_proto_tensors import read_tensor_proto, tensor_proto_head, write_values
from server.protocol.wire import Asked
from server.signature import ModelSignature

__all__ = ["PredictMessage", "PredictedMessage", "read_model_spec"]

#: Fields of a request, which are listed on the event loop.
_MAX_FIELDS = 4_096

_SPEC, _INPUTS, _FILTER = (number << 3 | LEN for number in range(1, 4))
_KEY, _VALUE = 1 << 3 | LEN, 2 << 3 | LEN

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
        return PredictedMessage(rows, asked, selected_outputs(self._filter, signature, words=DATA_TYPES))


@dataclass(slots=True, eq=False)
class PredictedMessage:
    """A request that was read."""

    rows: Rows
    asked: Asked
    #: Places of the outputs that are asked for.
    wanted: tuple[int, ...]
    timeout_s: float | None = None
    priority: int | None = None

    def encode(self, outputs: Sequence[Column]) -> Encoded:
        """Write a PredictResponse. Errors: RaggedOutput."""
        signature = self.asked.signature
        writer = _ANSWERS.of(signature)
        pieces: list[Piece] = []
        for index in self.wanted:
            pieces += writer.output(index, stacked(outputs[index], signature.outputs[index]))
        pieces.append(writer.spec(self.asked))
        return b"".join(pieces), ()


class _AnswerWriter:
    """What the answers of a signature have in common, written once."""

    __slots__ = ("_keys", "_spec", "signature")

    def __init__(self, signature: ModelSignature) -> None:
        self.signature = signature
        self._keys = [joined(1, [tensor.name.encode()]) for tensor in signature.outputs]
        self._spec: tuple[str, int, bytes] = ("", 0, b"")

    def output(self, index: int, array: Array) -> list[Piece]:
        """Return an entry of the map of outputs."""
        dtype = self.signature.outputs[index].dtype
        values = write_values(array, dtype)
        described = tensor_proto_head(dtype, array.shape)
        n_tensor = len(described) + sum(map(len, values))
        before = self._keys[index] + head(2, n_tensor) + described
        return [head(1, len(before) + n_tensor - len(described)), before, *values]

    def spec(self, asked: Asked) -> bytes:
        """Return the field that says who answers."""
        name, version, written = self._spec
        if name != asked.name or version != asked.version:
            spec = message_class("tensorflow.serving.ModelSpec")(name=asked.name, signature_name=_SIGNATURE)
            spec.version.value = asked.version
            written = joined(2, [spec.SerializeToString()])
            self._spec = (asked.name, asked.version, written)
        return written


_ANSWERS = BySignature(_AnswerWriter)
