"""Models to ask in the Open Inference Protocol, and requests as a client would write them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from server.protocol import OipFormat, WireRequest
from server.protocol.oip_datatypes import DATATYPES
from server.signature import LengthAxis, ModelSignature, TensorSignature

NUMPY = {dtype: dtype for dtype in DATATYPES} | {"string": object, "bfloat16": ml_dtypes.bfloat16}


def tensor(name: str, dtype: str, *shape: int | str, optional: bool = False) -> TensorSignature:
    """One input or output."""
    return TensorSignature(name=name, dtype=dtype, shape=shape, is_optional=optional)


@dataclass(frozen=True)
class Model:
    """Somebody to ask."""

    signature: ModelSignature
    name: str = "m"
    version: int = 3


def model(*inputs: TensorSignature, outputs: Sequence[TensorSignature] = ()) -> Model:
    """A model of these inputs; it has a length axis of at most 8 if one of them names it."""
    axes = (LengthAxis(name="n", max=8, buckets=(4, 8)),) if any(not each.is_fixed for each in inputs) else ()
    return Model(ModelSignature(inputs=inputs, outputs=tuple(outputs) or (tensor("y", "float32"),), axes=axes))


def octets(array: np.ndarray[Any, Any]) -> bytes:
    """An array's bytes as the protocol wants them."""
    if array.dtype == object:
        return b"".join(struct.pack("<I", len(each)) + each for each in array.reshape(-1))
    return array.tobytes()


def from_octets(data: bytes, dtype: str) -> np.ndarray[Any, Any]:
    """The flat array that ``octets`` wrote."""
    if dtype != "string":
        return np.frombuffer(data, NUMPY[dtype])
    found = []
    while data:
        (size,) = struct.unpack_from("<I", data)
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    array = np.empty(len(found), object)
    array[:] = found
    return array


def described(name: str, dtype: str, shape: Sequence[int], **more: Any) -> dict[str, Any]:
    """One tensor of a request, with what ``more`` says."""
    return {"name": name, "shape": list(shape), "datatype": DATATYPES[dtype], **more}


def json_body(*tensors: Mapping[str, Any], **more: Any) -> bytes:
    """A request that is all JSON; NaN and infinities are written as their tokens."""
    return json.dumps({"inputs": tensors, **more}).encode()


def binary_body(arrays: Mapping[str, tuple[str, np.ndarray[Any, Any]]], **more: Any) -> tuple[bytes, int]:
    """A request whose values all are binary, and how long its JSON part is."""
    parts = {name: octets(array) for name, (_, array) in arrays.items()}
    header = json_body(
        *(
            described(name, dtype, array.shape, parameters={"binary_data_size": len(parts[name])})
            for name, (dtype, array) in arrays.items()
        ),
        **more,
    )
    return header + b"".join(parts.values()), len(header)


def decode(asked: Model, body: bytes, *, n_json: int | None = None, max_instances: int = 100) -> WireRequest:
    """Read a body."""
    return OipFormat(n_json).decode(body, asked, max_instances=max_instances)


def written(request: WireRequest, *outputs: Any) -> tuple[dict[str, Any], bytes]:
    """Write an answer, and return its JSON part and what follows."""
    body, headers = request.encode(list(outputs))
    told = dict(headers)
    n_json = int(told.get(b"inference-header-content-length", len(body)))
    is_binary = told[b"content-type"] == b"application/octet-stream"
    assert is_binary is (b"inference-header-content-length" in told)
    return json.loads(body[:n_json]), body[n_json:]


def assert_same(got: Any, expected: np.ndarray[Any, Any]) -> None:
    array = np.asarray(got)
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    assert octets(array) == octets(expected)
