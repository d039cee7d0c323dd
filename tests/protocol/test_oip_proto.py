"""ModelInfer: what its bytes become, with which sentence others are refused, and what is answered."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.protocol import (
    Array,
    Column,
    MalformedRequest,
    ProtocolError,
    RaggedOutput,
    WrongDtype,
    WrongKeys,
    WrongShape,
)
from server.protocol.messages import message_class
from server.protocol.oip_datatypes import DATATYPES
from server.protocol.oip_proto import InferCall, InferRequest
from server.protocol.oip_proto_answers import ANSWERS
from server.signature import LengthAxis, ModelSignature, TensorSignature
from tests.protocol.asked import EVERY_DTYPE, Someone, one_to_one, same_bits, values_of

REQUEST = message_class("inference.ModelInferRequest")
RESPONSE = message_class("inference.ModelInferResponse")

FIELD = {
    **dict.fromkeys(("int8", "int16", "int32"), "int_contents"),
    **dict.fromkeys(("uint8", "uint16", "uint32"), "uint_contents"),
    "bool": "bool_contents",
    "int64": "int64_contents",
    "uint64": "uint64_contents",
    "float32": "fp32_contents",
    "float64": "fp64_contents",
    "string": "bytes_contents",
}
UNTYPED = ("float16", "bfloat16")
FLOATS = one_to_one("float32")


def raw_of(array: Array) -> bytes:
    if array.dtype != object:
        return array.tobytes()
    return b"".join(struct.pack("<I", len(value)) + value for value in array.reshape(-1))


def message(array: Array, dtype: str, *, typed: bool = False, name: str = "x", **more: Any) -> Any:
    request = REQUEST(model_name="m", **more)
    tensor = request.inputs.add(name=name, datatype=DATATYPES[dtype], shape=array.shape)
    if typed:
        getattr(tensor.contents, FIELD[dtype]).extend(array.reshape(-1).tolist())
    else:
        request.raw_input_contents.append(raw_of(array))
    return request


def read(request: Any, asked: Someone = FLOATS, *, limit: int = 1_000) -> InferRequest:
    body = request if isinstance(request, bytes) else request.SerializeToString()
    return InferCall(body).decode(body, asked, max_instances=limit)


def answer(request: InferRequest, outputs: Sequence[Column]) -> Any:
    return RESPONSE.FromString(request.encode(outputs)[0])


def test_a_parameter_in_two_parts_lost_the_first() -> None:
    request = message(np.float32([[1, 2]]), "float32")
    parts = b"\x0a\x07timeout\x12\x02\x10\x07" + b"\x12\x00"
    body = request.SerializeToString() + b"\x22" + bytes([len(parts)]) + parts
    assert REQUEST.FromString(body).parameters["timeout"].int64_param == 7
    assert read(body).timeout_s == 7e-6


def test_whom_it_asks_is_known_before_the_tensors_are_read() -> None:
    call = InferCall(REQUEST(model_name="m\u00e9", model_version="7", id="i").SerializeToString())
    assert (call.model, call.version, call.id) == ("m\u00e9", "7", b"i")
    assert InferCall(b"").version is None
    with pytest.raises(MalformedRequest, match="model_name is not UTF-8"):
        InferCall(b"\x0a\x01\xff")


@pytest.mark.parametrize(
    ("dtype", "typed"),
    [(dtype, typed) for dtype in EVERY_DTYPE for typed in (False, True) if dtype in FIELD or not typed],
)
def test_every_datatype_comes_and_goes_bit_by_bit(dtype: str, *, typed: bool) -> None:
    values, asked = values_of(dtype), one_to_one(dtype)
    request = read(message(values, dtype, typed=typed), asked)
    (column,) = request.rows.columns
    assert same_bits(np.asarray(column), values)
    response = answer(request, [values])
    (output,) = response.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("y", DATATYPES[dtype], [2, 2])
    if typed:
        assert list(response.raw_output_contents) == []
        got = np.array(getattr(output.contents, FIELD[dtype]), values.dtype).reshape(2, 2)
        assert same_bits(got, values)
    else:
        assert not output.HasField("contents")
        assert list(response.raw_output_contents) == [raw_of(values)]


@pytest.mark.parametrize("typed", [False, True], ids=["raw", "typed"])
@pytest.mark.parametrize("dtype", ["float32", "string", "bool"])
def test_tensors_without_elements_come_and_go(dtype: str, *, typed: bool) -> None:
    empty = np.empty((3, 0), object if dtype == "string" else dtype)
    request = read(message(empty, dtype, typed=typed), one_to_one(dtype, (0,)))
    assert request.rows.n == 3
    response = answer(request, [empty])
    assert list(response.outputs[0].shape) == [3, 0]
    # Nothing in typed contents looks like nothing at all: either form says it.
    assert list(response.raw_output_contents) == ([] if typed else [b""])


def test_id_and_address_are_echoed() -> None:
    request = read(message(np.zeros((1, 2), np.float32), "float32", id="caller-7"))
    response = answer(request, [np.zeros((1, 2), np.float32)])
    assert (response.model_name, response.model_version, response.id) == ("m", "3", "caller-7")


def test_raw_contents_are_views_of_the_message() -> None:
    body = message(np.zeros((100, 2), np.float32), "float32").SerializeToString()
    (column,) = InferCall(body).decode(body, FLOATS, max_instances=100).rows.columns
    assert np.may_share_memory(np.asarray(column), np.frombuffer(body, np.uint8))


def test_one_example_may_come_without_the_dimension_of_examples_and_is_answered_so() -> None:
    request = read(message(np.float32([1, 2]), "float32"))
    assert request.rows.n == 1
    assert list(answer(request, [np.float32([[3, 4]])]).outputs[0].shape) == [2]
    scalar = read(message(np.float32(1), "float32"), one_to_one("float32", ()))
    assert list(answer(scalar, [np.float32([5])]).outputs[0].shape) == []


def test_the_caller_may_choose_the_form_of_the_answer() -> None:
    values = np.float32([[1, 2]])
    typed = message(values, "float32", typed=True)
    typed.parameters["binary_data_output"].bool_param = True
    assert list(answer(read(typed), [values]).raw_output_contents) == [values.tobytes()]
    raw = message(values, "float32")
    raw.parameters["binary_data_output"].bool_param = False
    assert list(answer(read(raw), [values]).outputs[0].contents.fp32_contents) == [1, 2]


def test_what_has_no_typed_form_makes_the_whole_answer_raw() -> None:
    outputs = tuple(TensorSignature(name=dtype, dtype=dtype, shape=()) for dtype in ("float32", "bfloat16"))
    asked = Someone(ModelSignature(inputs=FLOATS.signature.inputs, outputs=outputs))
    request = read(message(np.float32([[1, 2]]), "float32", typed=True), asked)
    response = answer(request, [np.zeros(1, np.float32), values_of("bfloat16")[0, :1]])
    assert [len(raw) for raw in response.raw_output_contents] == [4, 2]
    assert not any(output.HasField("contents") for output in response.outputs)


def test_outputs_are_answered_as_they_are_asked_for() -> None:
    outputs = tuple(TensorSignature(name=name, dtype="int8", shape=()) for name in ("a", "b", "c"))
    asked = Someone(ModelSignature(inputs=FLOATS.signature.inputs, outputs=outputs))
    request = message(np.zeros((1, 2), np.float32), "float32")
    request.outputs.add(name="c")
    request.outputs.add(name="a")
    response = answer(read(request, asked), [np.int8([1]), np.int8([2]), np.int8([3])])
    assert [output.name for output in response.outputs] == ["c", "a"]
    assert list(response.raw_output_contents) == [b"\x03", b"\x01"]


def test_the_timeout_is_in_microseconds() -> None:
    request = message(np.zeros((1, 2), np.float32), "float32")
    assert read(request).timeout_s is None
    request.parameters["timeout"].int64_param = 1_500
    assert read(request).timeout_s == 0.0015
    request.parameters["timeout"].string_param = "soon"
    with pytest.raises(MalformedRequest, match="'timeout' must be a whole number"):
        read(request)


def test_the_priority_is_taken_over() -> None:
    request = message(np.zeros((1, 2), np.float32), "float32")
    assert read(request).priority is None
    for value, expected in ((0, None), (2, 2)):
        request.parameters["priority"].uint64_param = value
        assert read(request).priority == expected
    request.parameters["priority"].int64_param = -1
    with pytest.raises(MalformedRequest, match="'priority' must be a whole number from 0 to 255"):
        read(request)


def spoilt(**changes: Any) -> Any:
    request = message(np.float32([[1, 2]]), "float32")
    for name, value in changes.items():
        if name == "shape":
            del request.inputs[0].shape[:]
            request.inputs[0].shape.extend(value)
        elif name == "raw":
            del request.raw_input_contents[:]
            request.raw_input_contents.extend(value)
        else:
            setattr(request.inputs[0], name, value)
    return request


def both_forms() -> Any:
    request = spoilt()
    request.inputs[0].contents.fp32_contents.append(1)
    return request


def shared_memory() -> Any:
    request = spoilt()
    request.inputs[0].parameters["shared_memory_region"].string_param = "r"
    return request


def classification() -> Any:
    request = spoilt()
    request.outputs.add(name="y").parameters["classification"].int64_param = 3
    return request


def wrong_field() -> Any:
    request = spoilt(raw=[])
    request.inputs[0].contents.fp64_contents.append(1)
    return request


def twice() -> Any:
    request = spoilt(raw=[bytes(8)] * 2)
    request.inputs.append(request.inputs[0])
    return request


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        (spoilt(name="z"), WrongKeys, "input 'x' is missing; 'z' is no input"),
        (spoilt(datatype="FP64", raw=[bytes(16)]), WrongDtype, "input 'x': expected FP32, got FP64"),
        (spoilt(datatype="FLOAT"), WrongDtype, "datatype 'FLOAT' is none of BOOL, "),
        (spoilt(shape=[2, 2]), WrongShape, r"FP32\[2, 2\] takes 16 bytes, its raw contents have 8"),
        (spoilt(shape=[-1, 2]), WrongShape, "negative"),
        (spoilt(shape=[2**62, 2**62]), WrongShape, "too large"),
        (spoilt(shape=[0, 2**61, 2**61], raw=[b""]), WrongShape, "no tensor has the shape"),
        (spoilt(shape=[0] * 100, raw=[b""]), WrongShape, "no tensor has the shape"),
        (spoilt(shape=[1, 1, 2]), WrongShape, r"expected FP32\[n, 2\], got \[1, 1, 2\]"),
        (spoilt(raw=[bytes(8)] * 2), MalformedRequest, "1 inputs came with 2 raw_input_contents"),
        (spoilt(raw=[]), WrongShape, "has 2 elements, its contents have 0"),
        (both_forms(), MalformedRequest, "send one of the two"),
        (shared_memory(), MalformedRequest, "shared memory is not offered"),
        (classification(), MalformedRequest, "'classification' of an output is not offered"),
        (wrong_field(), WrongDtype, "FP32 goes into fp32_contents, not into fp64_contents"),
        (twice(), WrongKeys, "'x' is there twice"),
    ],
)
def test_what_is_no_request_is_said(request_: Any, error: type[ProtocolError], says: str) -> None:
    with pytest.raises(error, match=says):
        read(request_)


@pytest.mark.parametrize(("dtype", "value"), [("int8", 128), ("uint16", 65_536), ("int16", -32_769)])
def test_integers_of_a_wider_field_must_fit(dtype: str, value: int) -> None:
    request = message(np.array([[0, value]]), dtype, typed=True)
    with pytest.raises(WrongDtype, match=f"out of the range of {dtype}"):
        read(request, one_to_one(dtype))


@pytest.mark.parametrize("dtype", UNTYPED)
def test_halves_have_no_typed_contents(dtype: str) -> None:
    request = message(values_of(dtype), dtype)
    del request.raw_input_contents[:]
    with pytest.raises(WrongDtype, match="has no typed contents; send raw_input_contents"):
        read(request, one_to_one(dtype))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"\x01\0\0\0a", "can't hold 2 strings"),
        (b"\x01\0\0\0a\x09\0\0\0b", "end in string 1 of 2"),
        (b"\x01\0\0\0a\x01\0\0\0bc", "after its 2 strings 1 bytes are left"),
    ],
)
def test_strings_have_their_lengths_before_them(raw: bytes, says: str) -> None:
    request = message(np.array([[b"", b""]], object), "string")
    request.raw_input_contents[0] = raw
    with pytest.raises(WrongShape, match=says):
        read(request, one_to_one("string"))


def test_rows_of_differing_lengths_are_no_tensor() -> None:
    signature = ModelSignature(
        inputs=FLOATS.signature.inputs,
        outputs=(TensorSignature(name="y", dtype="int8", shape=("n",)),),
        axes=(LengthAxis(name="n", max=4, buckets=(4,)),),
    )
    request = InferRequest(
        rows=read(spoilt()).rows,
        form=ANSWERS.of(signature).form((0,), Someone(signature), is_bare=False, is_raw=True),
        id_text=None,
        timeout_s=None,
    )
    assert list(answer(request, [[np.int8([1, 2]), np.int8([3, 4])]]).outputs[0].shape) == [2, 2]
    with pytest.raises(RaggedOutput, match="':predict'"):
        request.encode([[np.int8([1]), np.int8([2, 3])]])


VALID = message(np.float32([[1, 2], [3, 4]]), "float32", id="i")
VALID.parameters["timeout"].int64_param = 10
VALID_BODY = VALID.SerializeToString()


@given(st.lists(st.tuples(st.integers(0, len(VALID_BODY) - 1), st.integers(0, 255)), max_size=4), st.integers(0, 80))
@settings(max_examples=100)
def test_damaged_requests_give_no_other_error(changes: list[tuple[int, int]], n_lost: int) -> None:
    body = bytearray(VALID_BODY)
    for place, octet in changes:
        body[place] = octet
    with suppress(ProtocolError):
        assert read(bytes(body[: len(body) - n_lost])).rows.n > 0
