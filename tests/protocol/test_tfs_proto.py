"""TensorFlow Serving's Predict: what its bytes become, with which sentence others are refused, what is answered."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.protocol import Array, MalformedRequest, ProtocolError, UnknownSignature, WrongDtype, WrongKeys, WrongShape
from server.protocol.messages import message_class
from server.protocol.tfs_dtypes import DATA_TYPES
from server.protocol.tfs_proto import PredictedMessage, PredictMessage
from server.signature import ModelSignature, TensorSignature
from tests.protocol.asked import EVERY_DTYPE, Someone, one_to_one, same_bits, values_of

REQUEST = message_class("tensorflow.serving.PredictRequest")
RESPONSE = message_class("tensorflow.serving.PredictResponse")
TENSOR = message_class("tensorflow.TensorProto")

FIELD = {
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), "int_val"),
    **dict.fromkeys(("float16", "bfloat16"), "half_val"),
    "float32": "float_val",
    "float64": "double_val",
    "string": "string_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
}
FLOATS = one_to_one("float32")


def tensor(array: Array, dtype: str, *, content: bool = False) -> Any:
    made = TENSOR(dtype=DATA_TYPES[dtype])
    for size in array.shape:
        made.tensor_shape.dim.add(size=size)
    if content:
        made.tensor_content = array.tobytes()
    else:
        getattr(made, FIELD[dtype]).extend(plain(array, dtype))
    return made


def plain(array: Array, dtype: str) -> list[Any]:
    flat = array.reshape(-1)
    values: list[Any] = (flat.view(np.uint16) if FIELD[dtype] == "half_val" else flat).tolist()
    return values


def message(made: Any, name: str = "x") -> Any:
    request = REQUEST()
    request.model_spec.name = "m"
    request.inputs[name].CopyFrom(made)
    return request


def read(request: Any, asked: Someone = FLOATS) -> PredictedMessage:
    body = request if isinstance(request, bytes) else request.SerializeToString()
    return PredictMessage(body).decode(body, asked, max_instances=1_000)


def test_whom_it_asks_is_known_before_the_tensors_are_read() -> None:
    request = message(tensor(np.zeros((1, 2), np.float32), "float32"))
    asks = PredictMessage(request.SerializeToString())
    assert (asks.model, asks.version, asks.label) == ("m", None, None)
    request.model_spec.version.value = 5
    assert PredictMessage(request.SerializeToString()).version == "5"
    request.model_spec.version_label = "stable"
    asks = PredictMessage(request.SerializeToString())
    assert (asks.version, asks.label) == (None, "stable")
    request.model_spec.signature_name = "other"
    with pytest.raises(UnknownSignature, match="'other'"):
        PredictMessage(request.SerializeToString())
    with pytest.raises(MalformedRequest, match="say which model"):
        PredictMessage(b"")


@pytest.mark.parametrize(
    ("dtype", "content"),
    [(dtype, content) for dtype in EVERY_DTYPE for content in (False, True) if dtype != "string" or not content],
)
def test_every_dtype_comes_and_goes_bit_by_bit(dtype: str, *, content: bool) -> None:
    values, asked = values_of(dtype), one_to_one(dtype)
    request = read(message(tensor(values, dtype, content=content)), asked)
    assert same_bits(np.asarray(request.rows.columns[0]), values)
    response = RESPONSE.FromString(request.encode([values])[0])
    assert (response.model_spec.name, response.model_spec.version.value) == ("m", 3)
    assert response.model_spec.signature_name == "serving_default"
    assert list(response.outputs) == ["y"]
    expected = tensor(values, dtype)
    assert response.outputs["y"].SerializeToString() == expected.SerializeToString()


def test_tensors_without_elements_and_scalars_come_and_go() -> None:
    empty = np.empty((3, 0), np.float32)
    request = read(message(tensor(empty, "float32")), one_to_one("float32", (0,)))
    assert request.rows.n == 3
    (size, none) = RESPONSE.FromString(request.encode([empty])[0]).outputs["y"].tensor_shape.dim
    assert (size.size, none.size) == (3, 0)
    scalars = np.float32([1.5])
    request = read(message(tensor(scalars, "float32")), one_to_one("float32", ()))
    assert list(RESPONSE.FromString(request.encode([scalars])[0]).outputs["y"].float_val) == [1.5]


def test_the_last_value_stands_for_those_that_are_left_out() -> None:
    made = tensor(np.float32([[1, 2], [2, 2]]), "float32")
    del made.float_val[2:]
    assert np.asarray(read(message(made)).rows.columns[0]).tolist() == [[1, 2], [2, 2]]
    made.tensor_shape.dim[0].size = 2**30
    with pytest.raises(WrongShape, match="send them all"):
        read(message(made))


def test_outputs_are_answered_as_the_filter_says() -> None:
    outputs = tuple(TensorSignature(name=name, dtype="int8", shape=()) for name in ("a", "b"))
    asked = Someone(ModelSignature(inputs=FLOATS.signature.inputs, outputs=outputs))
    request = message(tensor(np.zeros((1, 2), np.float32), "float32"))
    request.output_filter.append("b")
    response = RESPONSE.FromString(read(request, asked).encode([np.int8([1]), np.int8([-2])])[0])
    assert {name: list(output.int_val) for name, output in response.outputs.items()} == {"b": [-2]}
    request.output_filter.append("c")
    with pytest.raises(WrongKeys, match="'c' is no output"):
        read(request, asked)


def test_contents_are_views_of_the_message() -> None:
    for content in (False, True):
        body = message(tensor(np.ones((100, 2), np.float32), "float32", content=content)).SerializeToString()
        (column,) = PredictMessage(body).decode(body, FLOATS, max_instances=100).rows.columns
        assert np.may_share_memory(np.asarray(column), np.frombuffer(body, np.uint8))


def spoilt(**changes: Any) -> Any:
    made = tensor(np.float32([[1, 2]]), "float32")
    for name, value in changes.items():
        if name == "sizes":
            for size in value:
                made.tensor_shape.dim.add(size=size)
        elif name == "unknown_rank":
            made.tensor_shape.unknown_rank = value
        else:
            setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("made", "error", "says"),
    [
        (spoilt(dtype="DT_DOUBLE"), WrongDtype, "no values in the field of its dtype, DT_DOUBLE"),
        (spoilt(dtype="DT_INVALID"), WrongDtype, "dtype 0 is none of DT_BOOL"),
        (tensor(np.float64([[1, 2]]), "float64"), WrongDtype, "input 'x': expected DT_FLOAT, got DT_DOUBLE"),
        (spoilt(sizes=[2]), WrongShape, r"expected DT_FLOAT\[n, 2\], got \[1, 2, 2\]"),
        (spoilt(sizes=[-1]), WrongShape, "negative"),
        (spoilt(sizes=[0]), WrongShape, r"DT_FLOAT\[1, 2, 0\] has 0 elements, 2 came"),
        (spoilt(unknown_rank=True), WrongShape, "unknown rank"),
        (spoilt(tensor_content=b"abc"), WrongShape, "takes 8 bytes, its tensor_content has 3"),
        (tensor(np.zeros((2, 3), np.float32), "float32"), WrongShape, r"got \[2, 3\]"),
    ],
)
def test_what_is_no_tensor_of_the_model_is_said(made: Any, error: type[ProtocolError], says: str) -> None:
    with pytest.raises(error, match=says):
        read(message(made))


def test_integers_of_a_wider_field_must_fit() -> None:
    with pytest.raises(WrongDtype, match="out of the range of int8"):
        read(message(tensor(np.array([[1, 300]]), "int8")), one_to_one("int8"))


VALID_BODY = message(tensor(np.float32([[1, 2], [3, 4]]), "float32")).SerializeToString()


@given(st.lists(st.tuples(st.integers(0, len(VALID_BODY) - 1), st.integers(0, 255)), max_size=4), st.integers(0, 60))
@settings(max_examples=100)
def test_damaged_requests_give_no_other_error(changes: list[tuple[int, int]], n_lost: int) -> None:
    body = bytearray(VALID_BODY)
    for place, octet in changes:
        body[place] = octet
    with suppress(ProtocolError):
        assert read(bytes(body[: len(body) - n_lost])).rows.n > 0


def test_a_tensor_in_two_parts_lost_the_first() -> None:
    made = tensor(np.float32([[1, 2]]), "float32")
    shape, values = TENSOR(dtype=made.dtype, tensor_shape=made.tensor_shape), TENSOR(float_val=made.float_val)
    parts = b"\x0a\x01x" + b"".join(
        b"\x12" + bytes([len(part)]) + part for part in (shape.SerializeToString(), values.SerializeToString())
    )
    body = b"\x0a\x03\x0a\x01m" + b"\x12" + bytes([len(parts)]) + parts
    assert REQUEST.FromString(body).inputs["x"] == made
    request = PredictMessage(body).decode(body, FLOATS, max_instances=10)
    assert np.array_equal(request.rows.columns[0], [[1, 2]])
