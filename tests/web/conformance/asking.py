"""The protocols of the matrix, as clients write and read them: nothing here uses the server's codecs.

Each says a question in its own form and reads the answer back into arrays. ``carries`` tells what a form has no place
for; the server must refuse that with a sentence (``test_what_a_form_can_not_carry...``), never garble it.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from server.protocol import Array
from server.protocol.dtypes import numpy_dtype
from server.protocol.messages import message_class
from server.signature import TensorSignature
from tests.protocol.oip_models import DATATYPES, octets
from tests.web.conformance.serving import Refused, Server

__all__ = ["PROTOCOLS", "Answered", "Asked", "OipGrpc", "Protocol", "tensor_message"]

HALVES = ("float16", "bfloat16")
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
#: Arrays of more rows than these are taken as they are.
_MANY = 1_000
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


@dataclass(frozen=True)
class Asked:
    """A question. Shapes: ``inputs`` are ``[n, *example]``; ``outputs`` the signature's, those that are expected."""

    model: str
    inputs: Mapping[str, tuple[str, Array]]
    outputs: Sequence[TensorSignature]
    only: Sequence[str] = ()
    id: str = ""
    version: int | None = None
    label: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    in_pieces: bool = False

    @property
    def wanted(self) -> dict[str, TensorSignature]:
        """The outputs that should come back, by name, in the order that was asked for."""
        by_name = {tensor.name: tensor for tensor in self.outputs}
        return {name: by_name[name] for name in self.only or by_name}

    @property
    def lines(self) -> list[str]:
        """The headers of an HTTP request."""
        return [f"{name}: {value}" for name, value in self.headers.items()]

    def path(self, template: str) -> str:
        """A path of the model, its version or its label."""
        chosen = f"/versions/{self.version}" if self.version is not None else ""
        chosen = f"/labels/{self.label}" if self.label else chosen
        return template.replace("MODEL", self.model + chosen)


@dataclass(frozen=True)
class Answered:
    """An answer, as the client reads it; empty or None where the protocol does not say it."""

    outputs: dict[str, Array]
    id: str | None = None
    model: str | None = None
    version: str | None = None


class Protocol:
    """One way to ask."""

    name = ""
    is_http = True
    has_filters = True
    has_ids = True
    has_parameters = True
    #: False: it is for models of one input.
    has_names = True

    def carries(self, dtype: str, shape: Sequence[int | str], *, n: int) -> bool:
        """True if ``n`` examples of that dtype and of a signature's shape have a form here."""
        return True

    def keeps_nan_bits(self) -> bool:
        """True if NaN is bits here, not a word."""
        return True

    def ask(self, server: Server, asked: Asked) -> Answered:
        """Ask. Errors: Refused."""
        raise NotImplementedError


def _checked(answer: tuple[int, dict[str, str], bytes]) -> tuple[dict[str, str], bytes]:
    status, headers, body = answer
    if status != 200:
        assert headers["content-type"] == "application/json"
        raise Refused(status, json.loads(body)["error"], headers)
    return headers, body


def _to_json(value: Any) -> Any:
    """An array's elements as JSON has them: bytes as b64 where they are no text."""
    if isinstance(value, np.ndarray):
        plain = value.astype(np.float64) if value.dtype.name in HALVES else value
        return _to_json(plain.tolist()) if plain.dtype == object else plain.tolist()
    if isinstance(value, list):
        return [_to_json(each) for each in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(value).decode()}
    return value


def _from_json(value: Any, tensor: TensorSignature, *, n: int | None = None) -> Array:
    """JSON as an array ``[n, *example]``, or flat where ``n`` is None. Every value must be of the dtype's kind."""
    is_integer = numpy_dtype(tensor.dtype).kind in "iu"
    kinds = {"string": (str, dict), "bool": (bool,)}.get(tensor.dtype) or ((int,) if is_integer else (float, int))
    dims = [None] if n is None else [n, *tensor.shape]
    if tensor.dtype == "float32" and len(value) > _MANY:  # their kinds are looked at in few
        return np.array(value, np.float64).astype(numpy_dtype(tensor.dtype))
    sizes = [0] * len(dims)
    flat: list[Any] = []

    def walk(each: Any, depth: int) -> None:
        if depth == len(dims):
            assert type(each) in kinds, (each, tensor)
            flat.append(each)
            return
        assert isinstance(each, list), (each, tensor)
        assert not isinstance(dims[depth], int) or len(each) == dims[depth], (each, tensor)
        sizes[depth] = len(each)
        for inner in each:
            walk(inner, depth + 1)

    walk(value, 0)
    array: Array
    if tensor.dtype == "string":
        array = np.empty(len(flat), object)
        array[:] = [base64.b64decode(each["b64"]) if isinstance(each, dict) else each.encode() for each in flat]
    else:
        wide = np.float64 if numpy_dtype(tensor.dtype).kind not in "iub" else numpy_dtype(tensor.dtype)
        array = np.array(flat, wide).astype(numpy_dtype(tensor.dtype))
    known = [size if isinstance(dim, str | None) else dim for dim, size in zip(dims, sizes, strict=True)]
    return array.reshape(known)


class TfsRest(Protocol):
    """TensorFlow Serving's JSON, one example after another or one input after another."""

    has_filters = has_ids = has_parameters = False

    def __init__(self, name: str, *, by_rows: bool) -> None:
        self.name = name
        self._by_rows = by_rows

    def keeps_nan_bits(self) -> bool:
        return False

    def ask(self, server: Server, asked: Asked) -> Answered:
        columns = {name: _to_json(array) for name, (_, array) in asked.inputs.items()}
        n = len(next(iter(columns.values())))
        if self._by_rows:
            rows = [{name: column[row] for name, column in columns.items()} for row in range(n)]
            message: Any = {"instances": [next(iter(row.values())) for row in rows] if len(columns) == 1 else rows}
        else:
            message = {"inputs": next(iter(columns.values())) if len(columns) == 1 else columns}
        body = json.dumps(message, separators=(",", ":")).encode()
        path = asked.path("/v1/models/MODEL:predict")
        headers, body = _checked(server.post(path, body, *asked.lines, in_pieces=asked.in_pieces))
        assert headers["content-type"] == "application/json"
        answer = json.loads(body)
        (key,) = answer
        assert key == ("predictions" if self._by_rows else "outputs")
        found = answer[key]
        if len(asked.outputs) == 1:
            found = {asked.outputs[0].name: found}
        elif self._by_rows:
            assert {tuple(row) for row in found} == {tuple(tensor.name for tensor in asked.outputs)}
            found = {tensor.name: [row[tensor.name] for row in found] for tensor in asked.outputs}
        return Answered({tensor.name: _from_json(found[tensor.name], tensor, n=n) for tensor in asked.outputs})


class OipRest(Protocol):
    """The Open Inference Protocol over HTTP: ``form`` is flat, nested, binary or raw."""

    def __init__(self, name: str, form: str) -> None:
        self.name = name
        self._form = form
        self._is_binary = form in {"binary", "raw"}
        self.has_filters = self.has_ids = self.has_parameters = self.has_names = form != "raw"

    def carries(self, dtype: str, shape: Sequence[int | str], *, n: int) -> bool:
        if self._form == "raw":
            # Nothing but bytes: they must tell how many examples there are, or how long the only one is.
            return 0 not in shape and dtype != "string" and (n == 1 or all(isinstance(dim, int) for dim in shape))
        return self._is_binary or dtype not in HALVES

    def keeps_nan_bits(self) -> bool:
        return self._is_binary

    def ask(self, server: Server, asked: Asked) -> Answered:
        tensors, parts = [], []
        for name, (dtype, array) in asked.inputs.items():
            tensor: dict[str, Any] = {"name": name, "shape": array.shape, "datatype": DATATYPES[dtype]}
            if self._is_binary:
                parts.append(octets(array))
                tensor["parameters"] = {"binary_data_size": len(parts[-1])}
            else:
                tensor["data"] = _to_json(array if self._form == "nested" else array.reshape(-1))
            tensors.append(tensor)
        message: dict[str, Any] = {"id": asked.id} if asked.id else {}
        message["inputs"] = tensors
        if asked.parameters or self._is_binary:
            message["parameters"] = {**asked.parameters, **({"binary_data_output": True} if self._is_binary else {})}
        if asked.only:
            message["outputs"] = [{"name": name} for name in asked.only]
        text = b"" if self._form == "raw" else json.dumps(message, separators=(",", ":")).encode()
        headers = [f"Inference-Header-Content-Length: {len(text)}"] if self._is_binary else []
        path = asked.path("/v2/models/MODEL/infer")
        body = text + b"".join(parts)
        got, body = _checked(server.post(path, body, *headers, *asked.lines, in_pieces=asked.in_pieces))
        n_json = int(got.get("inference-header-content-length", len(body)))
        assert got["content-type"] == ("application/octet-stream" if self._is_binary else "application/json")
        answer, rest = json.loads(body[:n_json]), body[n_json:]
        outputs: dict[str, Array] = {}
        for output in answer["outputs"]:
            tensor_ = asked.wanted[output["name"]]
            assert output["datatype"] == DATATYPES[tensor_.dtype]
            if self._is_binary:
                assert "data" not in output
                size = output["parameters"]["binary_data_size"]
                array, rest = _from_octets(rest[:size], tensor_.dtype), rest[size:]
            else:
                array = _from_json(output["data"], tensor_)
            outputs[output["name"]] = array.reshape(output["shape"])
        assert not rest
        return Answered(outputs, answer.get("id"), answer["model_name"], answer["model_version"])


def _from_octets(data: bytes, dtype: str) -> Array:
    if dtype != "string":
        return np.frombuffer(data, numpy_dtype(dtype))
    found = []
    while data:
        (size,) = struct.unpack_from("<I", data)
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    array = np.empty(len(found), object)
    array[:] = found
    return array


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
                array = _from_octets(answer.raw_output_contents[place], dtype)
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


#: Every row of the matrix.
PROTOCOLS: Sequence[Protocol] = (
    TfsRest("tfs-rest-rows", by_rows=True),
    TfsRest("tfs-rest-columns", by_rows=False),
    OipRest("oip-json-flat", "flat"),
    OipRest("oip-json-nested", "nested"),
    OipRest("oip-binary", "binary"),
    OipRest("oip-raw", "raw"),
    OipGrpc("oip-grpc-raw", is_raw=True),
    OipGrpc("oip-grpc-contents", is_raw=False),
    TfsGrpc("tfs-grpc-content", is_content=True),
    TfsGrpc("tfs-grpc-values", is_content=False),
)
