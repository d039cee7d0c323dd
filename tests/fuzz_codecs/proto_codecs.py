"""Codecs of protocol buffers, compared with the stock library."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from server.protocol import ProtocolError, RaggedOutput
from server.protocol.messages import message_class
from server.protocol.oip_proto import InferCall
from server.protocol.tfs_proto import PredictMessage
from tests.fuzz_codecs.asking import MAX_INSTANCES, Asking, arrays_of, check_rows
from tests.protocol.asked import Someone
from tests.protocol.oip_models import DATATYPES, binary_body

__all__ = ["OipProto", "TfsProto"]


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
        return found


class TfsProto(_Proto):
    """PredictRequest."""

    def __init__(self) -> None:
        super().__init__("tfs proto", PredictMessage, "tensorflow.serving.PredictRequest")

    def bodies(self, asked: Someone) -> list[bytes]:
        from tests.web.conformance.asking import tensor_message

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
