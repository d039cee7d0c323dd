"""The protocols over HTTP, as clients write and read them: nothing here uses the server's codecs."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from server.protocol import Array
from server.protocol.dtypes import numpy_dtype
from server.protocol.oip_datatypes import DATATYPES
from server.signature import TensorSignature
from tests.protocol.oip_models import from_octets, octets
from tests.web.conformance.asking import HALVES, Answered, Asked, Protocol
from tests.web.conformance.serving import Refused, Server

__all__ = ["OipRest", "TfsRest"]

#: Arrays of more rows than these are taken as they are.
_MANY = 1_000


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
                array, rest = from_octets(rest[:size], tensor_.dtype), rest[size:]
            else:
                array = _from_json(output["data"], tensor_)
            outputs[output["name"]] = array.reshape(output["shape"])
        assert not rest
        return Answered(outputs, answer.get("id"), answer["model_name"], answer["model_version"])
