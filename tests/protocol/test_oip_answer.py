"""Answers in the Open Inference Protocol."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from server.protocol import RaggedOutput, WrongKeys
from server.protocol.oip_datatypes import DATATYPES, ONLY_BINARY
from tests.protocol.oip_models import NUMPY, Model, decode, described, json_body, model, octets, tensor, written
from tests.protocol.test_oip_datatypes import values_of

ALL_BINARY = {"parameters": {"binary_data_output": True}}


def asked(*outputs: Any) -> Model:
    return model(tensor("x", "float32"), outputs=outputs)


def request(who: Model, n: int = 2, **more: Any) -> Any:
    return decode(who, json_body(described("x", "float32", [n], data=[0] * n), **more))


@pytest.mark.parametrize("shape", [(), (2,), (2, 2), (0,)])
@pytest.mark.parametrize("dtype", sorted(DATATYPES))
def test_every_datatype_is_answered_to_the_bit_in_binary(dtype: str, shape: tuple[int, ...]) -> None:
    who = asked(tensor("y", dtype, *shape))
    for _ in range(2):
        array = values_of(dtype, 2, *shape)
        told, rest = written(request(who, **ALL_BINARY), array)
        assert told == {
            "model_name": "m",
            "model_version": "3",
            "outputs": [
                {
                    "name": "y",
                    "datatype": DATATYPES[dtype],
                    "shape": [2, *shape],
                    "parameters": {"binary_data_size": len(rest)},
                }
            ],
        }
        assert rest == octets(array)


@pytest.mark.parametrize("dtype", sorted(dtype for dtype in DATATYPES if DATATYPES[dtype] not in ONLY_BINARY))
def test_every_datatype_that_has_a_json_form_is_answered_flat(dtype: str) -> None:
    array = values_of(dtype, 2, 2)
    told, rest = written(request(asked(tensor("y", dtype, 2))), array)
    data = told["outputs"][0]["data"]
    assert (rest, told["outputs"][0]["shape"]) == (b"", [2, 2])
    if dtype == "string":
        assert data == ["", "a\0b", {"b64": "//4="}, "ä€"]
    else:
        assert np.array(data, NUMPY[dtype]).tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_that_are_not_finite_are_tokens(dtype: str) -> None:
    array = np.array([[np.nan, 1.5], [np.inf, -np.inf]], dtype)
    body, _ = request(asked(tensor("y", dtype, 2))).encode([array])
    assert b'"data":[NaN,1.5,Infinity,-Infinity]' in body
    np.testing.assert_array_equal(json.loads(body)["outputs"][0]["data"], array.reshape(-1))


def test_text_that_says_null_is_text() -> None:
    told, _ = written(request(asked(tensor("y", "string"))), np.array([b"null", b"1"], object))
    assert told["outputs"][0]["data"] == ["null", "1"]


def test_only_the_outputs_that_are_asked_for_come_in_their_order_and_form() -> None:
    who = asked(tensor("a", "int32"), tensor("b", "float32", 2), tensor("c", "string"))
    outputs = [np.array([1, 2], np.int32), np.array([[1, 2], [3, 4]], np.float32), np.array([b"x", b"yz"], object)]
    wishes = [{"name": "c", "parameters": {"binary_data": True}}, {"name": "a"}]
    for _ in range(2):
        told, rest = written(request(who, outputs=wishes), *outputs)
        assert [(each["name"], each.get("data")) for each in told["outputs"]] == [("c", None), ("a", [1, 2])]
        assert rest == b"\1\0\0\0x\2\0\0\0yz"
    wishes = [{"name": "b", "parameters": {"binary_data": False}}, {"name": "a"}]
    told, rest = written(request(who, outputs=wishes, **ALL_BINARY), *outputs)
    assert told["outputs"][0]["data"] == [1, 2, 3, 4]
    assert rest == outputs[0].tobytes()
    told, rest = written(request(who, outputs=[]), *outputs)
    assert [each["name"] for each in told["outputs"]] == ["a", "b", "c"]
    with pytest.raises(WrongKeys):
        request(who, outputs=[{"name": "x"}])


def test_byte_strings_of_another_length_make_another_size() -> None:
    who = asked(tensor("y", "string"))
    for texts in ([b"a", b"b"], [b"aaa", b""]):
        told, rest = written(request(who, **ALL_BINARY), np.array(texts, object))
        assert told["outputs"][0]["parameters"]["binary_data_size"] == len(rest)
        assert rest == octets(np.array(texts, object))


@pytest.mark.parametrize("given", ["", "a", 'q"\\', "ä\u2028", "\ud800"])
def test_an_id_is_echoed(given: str) -> None:
    told, _ = written(request(asked(tensor("y", "int64")), id=given), np.array([1, 2]))
    assert told["id"] == given


def test_no_id_is_no_id() -> None:
    for more in ({}, {"id": None}):
        assert "id" not in written(request(asked(tensor("y", "int64")), **more), np.array([1, 2]))[0]


def test_a_request_without_a_dimension_of_examples_is_answered_without_one() -> None:
    who = model(tensor("x", "float32", 1), outputs=[tensor("y", "float32", 2), tensor("z", "int32")])
    single = decode(who, json_body(described("x", "float32", [1], data=[0])))
    told, _ = written(single, np.array([[1, 2]], np.float32), np.array([7], np.int32))
    assert [(each["shape"], each["data"]) for each in told["outputs"]] == [([2], [1, 2]), ([], [7])]


def test_rows_of_one_length_are_a_tensor_and_others_are_refused() -> None:
    who = model(tensor("x", "float32", "n"), outputs=[tensor("y", "float32", "n"), tensor("z", "string", "other")])
    two = decode(who, json_body(described("x", "float32", [2, 3], data=[0] * 6)))
    y = [np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)]
    told, _ = written(two, y, [np.array([b"a"], object), np.array([b"b"], object)])
    assert [each["shape"] for each in told["outputs"]] == [[2, 3], [2, 1]]
    with pytest.raises(RaggedOutput, match="output 'z': its rows differ in shape"):
        two.encode([y, [np.array([b"a"], object), np.array([b"b", b"c"], object)]])
    # The same plan, and other shapes: nothing of the first answer is left.
    told, _ = written(two, y, [np.array([b"a", b"b"], object), np.array([b"b", b"c"], object)])
    assert told["outputs"][1]["shape"] == [2, 2]


def test_an_array_that_is_not_contiguous_is_written_in_its_order() -> None:
    array = np.arange(8, dtype=np.float32).reshape(2, 4)[:, ::2]
    who = asked(tensor("y", "float32", 2))
    assert written(request(who), array)[0]["outputs"][0]["data"] == [0, 2, 4, 6]
    assert written(request(who, **ALL_BINARY), array)[1] == np.ascontiguousarray(array).tobytes()
