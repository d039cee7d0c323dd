"""The protocols over gRPC, as clients write and read them: nothing here uses the server's codecs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from server.protocol import Array
from server.protocol.dtypes import numpy_dtype
from server.protocol.messages import message_class
from server.protocol.oip_datatypes import DATATYPES
from tests.protocol.oip_models import from_octets, octets
from tests.web.conformance.asking import HALVES, Answered, Asked, Protocol
from tests.web.conformance.serving import Server

__all__ = ["OipGrpc", "TfsGrpc", "tensor_message"]

_GRPC = "/inference.GRPCInferenceService/ModelInfer"
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_CONTENTS = dict.fromkeys(("int8", "int16", "int32"), "int_contents") | dict.fromkeys(
    ("uint8", "uint16", "uint32"), "uint_contents"
)
_CONTENTS |= {"bool": "bool_contents", "int64": "int64_contents", "uint64": "uint64_contents"}
_CONTENTS |= {"float32": "fp32_contents", "float64": "fp64_contents", "string": "bytes_contents"}
_VALUES = dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), "int_val")
_VALUES |= {"uint32": "uint32_val", "uint64": "uint64_val", "int64": "int64_val", "bool": "bool_val"}
_VALUES |= {"float16": "half_val", "bfloat16": "half_val", "float32": "float_val", "float64": "double_val"}
_VALUES |= {"string": "string_val"}
#: tensorflow/core/framework/types.proto, as clients know it.
_NUMBERS = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}


class OipGrpc(Protocol):
    """ModelInfer, with raw or with typed contents."""

    is_http = False

    def __init__(self, name: str, *, is_raw: bool) -> None:
        self.name = name
        self._is_raw = is_raw

    def carries(self, dtype: str, shape: Sequence[int | str], *, n: int) -> bool:
        return self._is_raw or dtype not in HALVES

    def ask(self, server: Server, asked: Asked) -> Answered:
        """Ask by a call of its own. Errors: Refused."""
        request = self.message(asked)
        answer = server.call(_GRPC, request, "inference.ModelInferResponse", metadata=tuple(asked.headers.items()))
        return self.answered(answer, asked)

    def ask_in_stream(self, server: Server, asked: Sequence[Asked]) -> list[Answered | str]:
        """Ask in one stream, of which nothing else is known; what was refused is its sentence."""
        messages = [self.message(each) for each in asked]
        answers = server.stream(_STREAM, messages, "inference.ModelStreamInferResponse")
        return [
            answer.error_message or self.answered(answer.infer_response, each)
            for answer, each in zip(answers, asked, strict=True)
        ]

    def message(self, asked: Asked) -> Any:
        """Return the request."""
        version = "" if asked.version is None else str(asked.version)
        request = message_class("inference.ModelInferRequest")(
            model_name=asked.model, model_version=version, id=asked.id
        )
        for key, value in asked.parameters.items():
            request.parameters[key].int64_param = value
        for name in asked.only:
            request.outputs.add(name=name)
        for name, (dtype, array) in asked.inputs.items():
            tensor = request.inputs.add(name=name, datatype=DATATYPES[dtype], shape=array.shape)
            if self._is_raw:
                request.raw_input_contents.append(octets(array))
            else:
                getattr(tensor.contents, _CONTENTS.get(dtype, "fp32_contents")).extend(array.reshape(-1).tolist())
        return request

    def answered(self, answer: Any, asked: Asked) -> Answered:
        """Read a response."""
        assert len(answer.raw_output_contents) == (len(answer.outputs) if self._is_raw else 0)
        outputs: dict[str, Array] = {}
        for place, output in enumerate(answer.outputs):
            dtype = asked.wanted[output.name].dtype
            assert output.datatype == DATATYPES[dtype]
            if self._is_raw:
                array = from_octets(answer.raw_output_contents[place], dtype)
            else:
                array = _from_repeated(getattr(output.contents, _CONTENTS[dtype]), dtype)
            outputs[output.name] = array.reshape(tuple(output.shape))
        return Answered(outputs, answer.id or None, answer.model_name, answer.model_version)


def tensor_message(tensor: Any, dtype: str, array: Array, *, is_content: bool) -> None:
    """Fill a TensorProto."""
    tensor.dtype = _NUMBERS[dtype]
    for size in array.shape:
        tensor.tensor_shape.dim.add(size=size)
    if is_content and dtype != "string":
        tensor.tensor_content = array.tobytes()
    else:
        plain = array.view(np.uint16) if dtype in HALVES else array
        getattr(tensor, _VALUES[dtype]).extend(plain.reshape(-1).tolist())


class TfsGrpc(Protocol):
    """Predict, with the tensors' content or with typed values."""

    is_http = False
    has_ids = has_parameters = False

    def __init__(self, name: str, *, is_content: bool) -> None:
        self.name = name
        self._is_content = is_content

    def ask(self, server: Server, asked: Asked) -> Answered:
        request = message_class("tensorflow.serving.PredictRequest")(output_filter=asked.only)
        request.model_spec.name = asked.model
        if asked.version is not None:
            request.model_spec.version.value = asked.version
        if asked.label:
            request.model_spec.version_label = asked.label
        for name, (dtype, array) in asked.inputs.items():
            tensor_message(request.inputs[name], dtype, array, is_content=self._is_content)
        answer = server.call(
            _PREDICT, request, "tensorflow.serving.PredictResponse", metadata=tuple(asked.headers.items())
        )
        outputs: dict[str, Array] = {}
        for name, tensor in answer.outputs.items():
            dtype = asked.wanted[name].dtype
            assert tensor.dtype == _NUMBERS[dtype]
            array = _from_repeated(getattr(tensor, _VALUES[dtype]), dtype)
            outputs[name] = array.reshape([dim.size for dim in tensor.tensor_shape.dim])
        return Answered(outputs, None, answer.model_spec.name, str(answer.model_spec.version.value))


def _from_repeated(values: Any, dtype: str) -> Array:
    if dtype == "string":
        array = np.empty(len(values), object)
        array[:] = list(values)
        return array
    if dtype in HALVES:
        return np.array(values, np.uint16).view(numpy_dtype(dtype))
    return np.array(values, numpy_dtype(dtype))
