"""Codecs of protocol buffers, compared with the stock library."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from server.protocol import ProtocolError, RaggedOutput
from server.protocol.messages import message_class
from server.protocol.oip_proto import InferCall
from server.protocol.proto_many import TensorFormat
from server.protocol.tfs_proto import PredictMessage
from server.web.rpc.known_messages import KnownMessages
from tests.fuzz_codecs.asking import ASKED, MAX_INSTANCES, Asking, arrays_of, check_rows, same
from tests.fuzz_codecs.target import Target
from tests.protocol.asked import Someone
from tests.protocol.oip_models import DATATYPES, binary_body

__all__ = ["JointProto", "OipProto", "TfsProto"]


class _Proto(Asking):
    """A message, against the stock library's reading of it."""

    def __init__(self, name: str, kind: Any, full_name: str) -> None:
        self.name = name
        self._kind = kind
        self._stock = message_class(full_name)

    def read_body(self, asked: Someone, body: bytes) -> str:
        try:
            request = self._kind(body).decode(body, asked, max_instances=MAX_INSTANCES)
        except Exception as error:
            if isinstance(error, ProtocolError):
                return type(error).__name__
            raise
        check_rows(request.rows, asked)
        try:
            self._stock.FromString(body)
        except DecodeError:
            # Some things are not looked at: fields without values of the tensor's dtype, a text of which another is.
            return "read, and not by the stock library"
        try:
            request.encode(request.rows.columns)
        except RaggedOutput:
            return "RaggedOutput"
        return "read"


_CONTENTS = dict.fromkeys(("int8", "int16", "int32"), "int_contents") | {
    **dict.fromkeys(("uint8", "uint16", "uint32"), "uint_contents"),
    "bool": "bool_contents",
    "int64": "int64_contents",
    "uint64": "uint64_contents",
    "string": "bytes_contents",
    "float32": "fp32_contents",
    "float64": "fp64_contents",
}


class OipProto(_Proto):
    """ModelInferRequest."""

    def __init__(self) -> None:
        super().__init__("oip proto", InferCall, "inference.ModelInferRequest")

    def bodies(self, asked: Someone) -> list[bytes]:
        found = []
        for arrays in arrays_of(asked):
            for is_raw in (True, False):
                request = self._stock(model_name="m", model_version="3", id="7")
                request.outputs.add(name="x")
                request.parameters["timeout"].int64_param = 5_000
                for name, (dtype, array) in arrays.items():
                    one = request.inputs.add(name=name, datatype=DATATYPES[dtype], shape=array.shape)
                    if is_raw:
                        raw, n_json = binary_body({name: (dtype, array)})
                        request.raw_input_contents.append(raw[n_json:])
                    elif dtype in _CONTENTS:
                        getattr(one.contents, _CONTENTS[dtype]).extend(array.reshape(-1).tolist())
                found.append(request.SerializeToString())
                del request.parameters["timeout"]
                found.append(request.SerializeToString())
        return found


class TfsProto(_Proto):
    """PredictRequest."""

    def __init__(self) -> None:
        super().__init__("tfs proto", PredictMessage, "tensorflow.serving.PredictRequest")

    def bodies(self, asked: Someone) -> list[bytes]:
        from tests.web.conformance.grpc_protocols import tensor_message

        found = []
        for arrays in arrays_of(asked):
            for is_content in (True, False):
                request = self._stock(output_filter=["x"])
                request.model_spec.name = "m"
                request.model_spec.version.value = 3
                for name, (dtype, array) in arrays.items():
                    tensor_message(request.inputs[name], dtype, array, is_content=is_content)
                found.append(request.SerializeToString())
        return found


class JointProto(Target):
    """Several messages to one model read together by their layouts, against each alone."""

    _MARK = b"\x1e\x1d\x1e\x1d"

    def __init__(self, name: str, one: OipProto | TfsProto) -> None:
        self.name = name
        self._one = one
        self._kind: Any = InferCall if isinstance(one, OipProto) else PredictMessage
        self._known = KnownMessages.of_infer() if isinstance(one, OipProto) else KnownMessages.of_predict()

    def corpus(self) -> Sequence[bytes]:
        random_ = random.Random(0)
        return [
            bytes((place,)) + self._MARK.join(random_.choice(bodies) for _ in range(n))
            for place, bodies in enumerate(map(self._one.bodies, ASKED))
            for n in (1, 2, 2, 3, 5)
        ]

    def read(self, data: bytes) -> str:
        asked = ASKED[(data[0] if data else 0) % len(ASKED)]
        bodies: list[bytes] = []
        formats: list[Any] = []
        for body in data[1:].split(self._MARK):
            try:
                path, wire = self._known.target(body)
            except ProtocolError:
                continue
            asks = self._kind(body)
            assert (path.model, path.version, path.label) == (asks.model, asks.version, asks.label)
            bodies.append(body)
            formats.append(wire)
        together = TensorFormat.decode_many(bodies, formats, asked, max_instances=MAX_INSTANCES)
        placed = [member for group in together.groups for member in group.members]
        assert len(set(placed)) == len(placed)
        assert not set(placed) & set(together.alone)
        for group in together.groups:
            start = 0
            for member, count, id_text in zip(group.members, group.counts, group.id_texts, strict=True):
                alone = self._kind(bodies[member]).decode(bodies[member], asked, max_instances=MAX_INSTANCES)
                assert (alone.rows.n, alone.id_text, alone.form) == (count, id_text, group.form)
                assert same(alone.rows.columns, [column[start : start + count] for column in group.rows.columns])
                assert alone.rows.lengths == (group.rows.lengths and group.rows.lengths[start : start + count])
                assert (alone.timeout_s, alone.priority) == (None, None)
                start += count
            assert start == group.rows.n
        return "none together" if not placed else "some together" if len(placed) < len(bodies) else "all together"
