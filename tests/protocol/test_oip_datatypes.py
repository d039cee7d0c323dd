"""Every datatype of the Open Inference Protocol arrives to the bit, in every form that it has."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from server.protocol import (
    WrongDtype,
)
from server.protocol.oip_datatypes import DATATYPES, ONLY_BINARY
from tests.protocol.oip_models import (
    NUMPY,
    assert_same,
    binary_body,
    decode,
    described,
    json_body,
    model,
    tensor,
)

VALUES: dict[str, list[Any]] = {
    "bool": [True, False, True, True],
    "string": [b"", b"a\0b", b"\xff\xfe", "ä€".encode()],
    **{
        dtype: [np.iinfo(dtype).min, 0, 1, np.iinfo(dtype).max]
        for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
    "float16": [0.1, -0.0, 65504, 6e-8],
    "bfloat16": [0.1, -0.0, 3e38, 1e-40],
    "float32": [0.1, -0.0, 3.4e38, 1e-45],
    "float64": [0.1, -0.0, 1.7e308, 5e-324],
}
FLAT, NESTED = "flat", "nested"


def values_of(dtype: str, *shape: int) -> np.ndarray[Any, Any]:
    array = np.empty(int(np.prod(shape)), NUMPY[dtype])
    array[:] = (VALUES[dtype] * len(array))[: len(array)]
    return array.reshape(shape)


def as_json(array: np.ndarray[Any, Any], form: str) -> Any:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                return {"b64": "//4="}
        return value

    return plain((array.reshape(-1) if form == FLAT else array).tolist())


@pytest.mark.parametrize("shape", [(), (2,), (2, 2), (1, 4)])
@pytest.mark.parametrize("dtype", sorted(DATATYPES))
def test_every_datatype_arrives_to_the_bit_in_binary(dtype: str, shape: tuple[int, ...]) -> None:
    asked = model(tensor("x", dtype, *shape))
    array = values_of(dtype, 3, *shape)
    body, n_json = binary_body({"x": (dtype, array)})
    rows = decode(asked, body, n_json=n_json).rows
    assert rows.n == 3
    assert_same(rows.columns[0], array)


@pytest.mark.parametrize("form", [FLAT, NESTED])
@pytest.mark.parametrize("shape", [(), (2,), (2, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("dtype", sorted(dtype for dtype in DATATYPES if DATATYPES[dtype] not in ONLY_BINARY))
def test_every_datatype_that_has_a_json_form_arrives_to_the_bit(dtype: str, shape: tuple[int, ...], form: str) -> None:
    asked = model(tensor("x", dtype, *shape))
    array = values_of(dtype, 3, *shape)
    for space in ((",", ":"), (", ", ": ")):
        tensors = [described("x", dtype, array.shape, data=as_json(array, form))]
        body = json.dumps({"inputs": tensors}, separators=space).encode()
        for _ in range(2):  # as a form that is new, and as one that is known
            assert_same(decode(asked, body).rows.columns[0], array)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_refused_in_json_with_what_to_do(dtype: str) -> None:
    body = json_body(described("x", dtype, [1, 2], data=[1.0, 2.0]))
    with pytest.raises(WrongDtype, match="has no form in JSON: send it in binary"):
        decode(model(tensor("x", dtype, 2)), body)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_and_infinities_are_tokens_in_json_and_bits_in_binary(dtype: str) -> None:
    array = np.array([[np.nan, np.inf, -np.inf, 1.5]], dtype)
    asked = model(tensor("x", dtype, 4))
    for data in (array.tolist(), array[0].tolist()):
        body = json_body(described("x", dtype, array.shape, data=data))
        assert b"NaN" in body
        np.testing.assert_array_equal(np.asarray(decode(asked, body).rows.columns[0]), array)
    payload = array.copy()
    payload.view(np.uint8)[0, 0] ^= 3  # a NaN with bits of its own
    body, n_json = binary_body({"x": (dtype, payload)})
    assert_same(decode(asked, body, n_json=n_json).rows.columns[0], payload)
