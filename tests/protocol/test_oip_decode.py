"""Requests of the Open Inference Protocol: what may be in one, and everything that is wrong with one."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from server.protocol import (
    EmptyRequest,
    MalformedRequest,
    OipFormat,
    TooManyInstances,
    WrongDtype,
    WrongKeys,
    WrongShape,
    oip_format,
)
from tests.protocol.oip_models import (
    Model,
    assert_same,
    binary_body,
    decode,
    described,
    json_body,
    model,
    tensor,
)


def test_laid_out_json_is_read_as_well() -> None:
    body = json.dumps({"inputs": [described("x", "float32", [2, 2], data=[[1, 2], [3, 4]])]}, indent=2).encode()
    assert np.asarray(decode(model(tensor("x", "float32", 2)), body).rows.columns[0]).tolist() == [[1, 2], [3, 4]]


def test_strings_may_hold_what_looks_like_json() -> None:
    texts = ['"data":[1]', "]}],", "]", "[[", '\\"data\\":[', "\u2028"]
    body = json_body(described("x", "string", [6], data=texts))
    column = decode(model(tensor("x", "string")), body).rows.columns[0]
    assert np.asarray(column).tolist() == [text.encode() for text in texts]


def test_an_input_of_no_elements_has_rows_all_the_same() -> None:
    asked = model(tensor("x", "float32", 0))
    for data in ([], [[], []]):
        rows = decode(asked, json_body(described("x", "float32", [2, 0], data=data))).rows
        assert (rows.n, np.asarray(rows.columns[0]).shape) == (2, (2, 0))
    body, n_json = binary_body({"x": ("float32", np.empty((2, 0), np.float32))})
    assert np.asarray(decode(asked, body, n_json=n_json).rows.columns[0]).shape == (2, 0)


def test_exactly_the_examples_shape_is_one_example() -> None:
    asked = model(tensor("x", "float32", 2), tensor("w", "float32"))
    for w in ([0.5], 0.5):
        tensors = [described("x", "float32", [2], data=[1, 2]), described("w", "float32", [], data=w)]
        rows = decode(asked, json_body(*tensors)).rows
        assert (rows.n, [np.asarray(column).tolist() for column in rows.columns]) == (1, [[[1, 2]], [0.5]])
    with pytest.raises(WrongShape, match=r"input 'w': expected the shape \[n\]"):
        decode(
            asked,
            json_body(described("x", "float32", [1, 2], data=[1, 2]), described("w", "float32", [], data=[1])),
        )


def test_inputs_may_come_in_any_order_and_some_of_them_in_binary() -> None:
    asked = model(tensor("x", "float32", 2), tensor("text", "string"), tensor("flag", "bool"))
    header = json_body(
        described("flag", "bool", [2], parameters={"binary_data_size": 2}),
        described("text", "string", [2], data=["a", "b"]),
        described("x", "float32", [2, 2], parameters={"binary_data_size": 16}),
    )
    x = np.array([[1, 2], [3, 4]], np.float32)
    for _ in range(2):
        rows = decode(asked, header + b"\1\0" + x.tobytes(), n_json=len(header)).rows
        assert [np.asarray(column).tolist() for column in rows.columns] == [x.tolist(), [b"a", b"b"], [True, False]]


def test_a_length_axis_is_as_long_as_the_shape_says_for_all_rows() -> None:
    asked = model(tensor("tokens", "int32", "n", 2), tensor("mask", "bool", "n"))
    tokens = np.arange(12, dtype=np.int32).reshape(2, 3, 2)
    mask = np.array([[True, False, True]] * 2)
    body, n_json = binary_body({"tokens": ("int32", tokens), "mask": ("bool", mask)})
    rows = decode(asked, body, n_json=n_json).rows
    assert rows.lengths == [(3,), (3,)]
    assert [row.tolist() for row in rows.columns[0]] == tokens.tolist()
    with pytest.raises(WrongShape, match=r"\[n, <=8, 2\].*got \[1, 9, 2\]"):
        decode(
            asked,
            json_body(
                described("tokens", "int32", [1, 9, 2], data=[0] * 18),
                described("mask", "bool", [1, 9], data=[True] * 9),
            ),
        )
    with pytest.raises(WrongShape, match="its length is 2, but input 'tokens' has 1"):
        decode(
            asked,
            json_body(
                described("tokens", "int32", [1, 1, 2], data=[0, 0]), described("mask", "bool", [1, 2], data=[True] * 2)
            ),
        )
    single = decode(
        asked, json_body(described("tokens", "int32", [0, 2], data=[]), described("mask", "bool", [0], data=[]))
    )
    assert (single.rows.n, single.rows.lengths, single.rows.columns[0][0].shape) == (1, [(0,)], (0, 2))


def test_a_seed_may_be_sent_and_is_drawn_where_it_is_not() -> None:
    asked = model(tensor("x", "float32"), tensor("seed", "int64", optional=True))
    sent = decode(
        asked, json_body(described("x", "float32", [2], data=[1, 2]), described("seed", "int64", [2], data=[7, 8]))
    )
    assert np.asarray(sent.rows.columns[1]).tolist() == [7, 8]
    body = json_body(described("x", "float32", [2], data=[1, 2]))
    drawn = [np.asarray(decode(asked, body).rows.columns[1]) for _ in range(2)]
    assert drawn[0].dtype == np.int64
    assert len({*drawn[0].tolist(), *drawn[1].tolist()}) == 4


def test_a_body_without_json_is_the_only_input_and_answered_in_binary() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    request = decode(model(tensor("x", "float32", 2), tensor("seed", "int64", optional=True)), x.tobytes(), n_json=0)
    assert_same(request.rows.columns[0], x)
    body, headers = request.encode([np.zeros(3, np.float32)])
    assert dict(headers)[b"content-type"] == b"application/octet-stream"
    assert body.endswith(bytes(12))
    tokens = np.arange(6, dtype=np.int32).reshape(3, 2)
    rows = decode(model(tensor("tokens", "int32", "n", 2)), tokens.tobytes(), n_json=0).rows
    assert (rows.n, rows.lengths, rows.columns[0][0].tolist()) == (1, [(3,)], tokens.tolist())
    text = decode(model(tensor("text", "string")), b"\0\xff raw", n_json=0).rows
    assert np.asarray(text.columns[0]).tolist() == [b"\0\xff raw"]


@pytest.mark.parametrize(
    ("asked", "body", "error"),
    [
        (model(tensor("x", "float32", 2)), b"1234567", WrongShape),
        (model(tensor("x", "float32", 2)), b"", EmptyRequest),
        (model(tensor("x", "float32", 2)), bytes(8 * 101), TooManyInstances),
        (model(tensor("x", "float32", 0)), b"1", WrongShape),
        (model(tensor("x", "float32", "n")), bytes(4 * 9), WrongShape),
        (model(tensor("x", "float32", "n", "n")), bytes(4), MalformedRequest),
        (model(tensor("x", "string", 2)), b"ab", MalformedRequest),
        (model(tensor("x", "bool")), b"\2", WrongDtype),
        (model(tensor("x", "float32"), tensor("y", "float32")), bytes(8), WrongKeys),
    ],
)
def test_a_body_without_json_that_is_not_the_only_input_is_refused(asked: Model, body: bytes, error: type) -> None:
    with pytest.raises(error):
        decode(asked, body, n_json=0)


X = model(tensor("x", "float32", 2))
HALF = model(tensor("x", "float32", 2), outputs=(tensor("y", "float32"), tensor("half", "float16")))
ONLY_Y = {"outputs": [{"name": "y"}]}


def x(**changes: Any) -> dict[str, Any]:
    return {**described("x", "float32", [1, 2], data=[1, 2]), **changes}


@pytest.mark.parametrize(
    ("body", "error", "sentence"),
    [
        (b"", MalformedRequest, "the body is empty: send a JSON object with 'inputs'"),
        (b"{", MalformedRequest, "the body is not JSON"),
        (b"\xff", MalformedRequest, "the body is not UTF-8"),
        (b"[" * 20_000, MalformedRequest, "nested too deeply"),
        (b"[]", MalformedRequest, "expected a JSON object with 'inputs', got an array"),
        (b"{}", MalformedRequest, "required field `inputs`"),
        (b'{"instances": [[1, 2]]}', MalformedRequest, "required field `inputs`"),
        (json_body(), WrongKeys, "input 'x' is missing"),
        (json_body(x(), id=7), MalformedRequest, r"Expected `str \| null`, got `int` - at `\$.id`"),
        (json_body(x(), parameters=[]), MalformedRequest, "none of the Open Inference Protocol"),
        (json_body(x(), x()), WrongKeys, "input 'x' is there twice"),
        (json_body(x(), x(name="z")), WrongKeys, "'z' is no input of this model; it has 'x'"),
        (json_body(x(datatype="FP64")), WrongDtype, "input 'x': expected FP32, got 'FP64'"),
        (json_body(x(datatype="float")), WrongDtype, "expected FP32, got 'float'"),
        (json_body(x(shape=[1, -2])), WrongShape, "negative size"),
        (json_body(x(shape=[1, 2.5])), MalformedRequest, r"\$.inputs\[0\].shape"),
        (json_body(x(shape=[1, 3])), WrongShape, r"expected the shape \[n, 2\].*got \[1, 3\]"),
        (json_body(x(shape=[1, 1, 2])), WrongShape, r"got \[1, 1, 2\]"),
        (json_body(x(shape=[])), WrongShape, r"got \[\]"),
        (json_body(x(shape=[0, 2], data=[])), EmptyRequest, "0 examples"),
        (json_body(x(shape=[101, 2])), TooManyInstances, "101 examples, at most 100"),
        (json_body(x(shape=[10**30, 2])), TooManyInstances, "at most 100"),
        (json_body(x(data=[1])), WrongShape, r"the shape \[1, 2\] takes 2 values, 'data' has 1 values"),
        (json_body(x(data=[[1, 2], [3, 4]])), WrongShape, "nested arrays"),
        (json_body(x(data=[[1], [2]])), WrongShape, "nested arrays"),
        (json_body(x(data=[[[1, 2]]])), WrongShape, "instance 0"),
        (json_body(x(data=[[1, [2]]])), WrongShape, "an array where a value belongs"),
        (json_body(x(data=None)), WrongShape, "'data' must be an array, got null"),
        (json_body(x(data=5)), WrongShape, "'data' must be an array, got 5"),
        (json_body(x(data=[1, "a"])), WrongDtype, r"input 'x' of instance 0\[1\]: expected float32, got \"a\""),
        (json_body(x(shape=[2, 2], data=[1, 2, 3, True])), WrongDtype, r"input 'x' of instance 1\[1\]"),
        (json_body(x(data=[1, 1e39])), WrongDtype, "float32 can't hold it"),
        (b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,,2]}]}', MalformedRequest, "not JSON"),
        (b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]x}]}', MalformedRequest, "not JSON"),
        (b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]', MalformedRequest, "not JSON"),
        (json_body({"name": "x", "shape": [1, 2], "datatype": "FP32"}), MalformedRequest, "has no values"),
        (
            json_body(described("x", "float32", [1, 2], parameters={"binary_data_size": 8})),
            MalformedRequest,
            "the header Inference-Header-Content-Length is missing",
        ),
        (json_body(x(parameters={"shared_memory_region": "r"})), MalformedRequest, "shared memory is not offered"),
        (json_body(x(), outputs=[{"name": "z"}]), WrongKeys, "'z' is no output of this model; it has 'y', 'half'"),
        (json_body(x(), outputs=[{"name": "y"}, {"name": "y"}]), WrongKeys, "asked for twice"),
        (json_body(x(), outputs=[{"name": "half"}]), WrongDtype, "output 'half' is FP16.*ask for it in binary"),
        (json_body(x(), outputs=[{"name": "y", "parameters": {"classification": 3}}]), MalformedRequest, "largest"),
        (json_body(x(), outputs=[{"name": "y", "parameters": {"binary_data": 1}}]), MalformedRequest, "true or false"),
        (json_body(x(), parameters={"binary_data_output": "yes"}), MalformedRequest, "true or false"),
        (json_body(x(), **ONLY_Y, parameters={"priority": -1}), MalformedRequest, "'priority' must be a whole number"),
        (json_body(x(), **ONLY_Y, parameters={"priority": True}), MalformedRequest, "got true"),
        (json_body(x(), **ONLY_Y, parameters={"timeout": 1.5}), MalformedRequest, "'timeout' must be a whole number"),
    ],
)
def test_what_is_wrong_with_a_request_is_said_where_it_is(body: bytes, error: type, sentence: str) -> None:
    for _ in range(2):  # what is known of a form, and what is not, makes no difference
        with pytest.raises(error, match=sentence):
            decode(HALF if b"outputs" in body else X, body)


def test_a_model_with_an_output_in_half_precision_is_asked_for_it_in_binary() -> None:
    with pytest.raises(WrongDtype, match="output 'half' is FP16"):
        decode(HALF, json_body(x()))
    decode(HALF, json_body(x(), **ONLY_Y))
    decode(HALF, json_body(x(), parameters={"binary_data_output": True}))


def test_binary_values_must_be_exactly_as_many_as_the_json_says() -> None:
    array = np.array([[1, 2]], np.float32)
    body, n_json = binary_body({"x": ("float32", array)}, **ONLY_Y)
    decode(X, body, n_json=n_json)
    for wrong in (body + b"1", body[:-1], body[:n_json]):
        with pytest.raises(MalformedRequest, match="bytes follow the JSON part"):
            decode(X, wrong, n_json=n_json)
    with pytest.raises(MalformedRequest, match=f"says {len(body) + 1} bytes of JSON, the body has {len(body)}"):
        decode(X, body, n_json=len(body) + 1)
    with pytest.raises(MalformedRequest, match="not JSON"):
        decode(X, body, n_json=n_json - 1)
    # Once its form is known it still takes the header.
    with pytest.raises(MalformedRequest, match="Inference-Header-Content-Length is missing"):
        decode(X, body[:n_json])
    short = json_body(described("x", "float32", [1, 2], parameters={"binary_data_size": 4}), **ONLY_Y)
    with pytest.raises(WrongShape, match="takes 8 bytes, 'binary_data_size' says 4"):
        decode(X, short + bytes(4), n_json=len(short))
    both = json_body(x(parameters={"binary_data_size": 8}), **ONLY_Y)
    with pytest.raises(MalformedRequest, match="both 'data' and 'binary_data_size'"):
        decode(X, both + bytes(8), n_json=len(both))
    all_json = json_body(x(), **ONLY_Y)
    decode(X, all_json, n_json=len(all_json))
    with pytest.raises(MalformedRequest, match="bytes of JSON, the body has"):
        decode(X, all_json, n_json=len(all_json) + 1)
    with pytest.raises(MalformedRequest, match="3 bytes follow"):
        decode(X, all_json + b"123", n_json=len(all_json))


@pytest.mark.parametrize(
    "data", [b"", b"\1\0\0\0", b"\1\0\0\0ab", b"\xff\xff\xff\xffa", b"\1\0\0\0a\1\0\0", b"\1\0\0\0a\1\0\0\0bc"]
)
def test_byte_strings_must_be_as_many_as_the_shape_says(data: bytes) -> None:
    header = json_body(described("x", "string", [2], parameters={"binary_data_size": len(data)}))
    with pytest.raises(WrongShape, match="the shape takes 2 byte strings"):
        decode(model(tensor("x", "string")), header + data, n_json=len(header))


def test_a_boolean_byte_that_is_neither_0_nor_1_is_refused() -> None:
    header = json_body(described("x", "bool", [2], parameters={"binary_data_size": 2}))
    with pytest.raises(WrongDtype, match="one byte, 0 or 1"):
        decode(model(tensor("x", "bool")), header + b"\1\2", n_json=len(header))


@pytest.mark.parametrize("text", [b"-1", b"", b"1.0", b"0x10", b" 5", b"1" * 19, "٣".encode()])
def test_a_length_of_the_json_part_that_is_no_number_is_refused(text: bytes) -> None:
    with pytest.raises(MalformedRequest, match="Inference-Header-Content-Length"):
        oip_format(text)


def test_priority_and_timeout_are_what_the_request_says_and_0_is_the_ordinary_one() -> None:
    def asked(**parameters: Any) -> tuple[int | None, float | None]:
        request = decode(X, json_body(x(), **ONLY_Y, parameters=parameters))
        return request.priority, request.timeout_s

    assert asked() == (None, None)
    assert asked(priority=1, timeout=2_500_000) == (1, 2.5)
    assert asked(priority=0, timeout=0, sequence_id=0, my_own="x") == (None, None)


def test_a_dtype_without_a_name_in_the_protocol_is_one_clear_sentence() -> None:
    with pytest.raises(WrongDtype, match="'x' is complex64, which the Open Inference Protocol has no datatype for"):
        decode(model(tensor("x", "complex64")), json_body())


def test_fewer_examples_may_be_allowed_while_the_server_runs() -> None:
    body = json_body(described("x", "float32", [3], data=[1, 2, 3]))
    asked = model(tensor("x", "float32"))
    decode(asked, body, max_instances=3)
    with pytest.raises(TooManyInstances):
        decode(asked, body, max_instances=2)


def test_values_that_are_not_aligned_in_the_body_are_read_all_the_same() -> None:
    array = np.array([[1.5, -2]], ml_dtypes.bfloat16)
    for request_id in ("", "a"):
        body, n_json = binary_body({"x": ("bfloat16", array)}, id=request_id)
        assert_same(decode(model(tensor("x", "bfloat16", 2)), body, n_json=n_json).rows.columns[0], array)


@pytest.mark.parametrize("key", [b"sha\\ud800pe", b"\\udfff"])
def test_half_of_a_surrogate_pair_in_a_key_was_an_error_of_ours(key: bytes) -> None:
    body = json_body(described("x", "float32", [1, 2], data=[1, 2])).replace(b"shape", key)
    with pytest.raises(MalformedRequest, match="half of a surrogate pair"):
        decode(model(tensor("x", "float32", 2)), body)


@pytest.mark.parametrize("place", [0, 1, -2, -1], ids=["opened", "opened inside", "closed inside", "closed"])
def test_an_array_that_another_character_opens_or_closes_is_not_read_with_others(place: int) -> None:
    asked = model(tensor("x", "uint64", 2))
    array = b"[[7, 8]]"
    right = json_body(described("x", "uint64", [1, 2], data=[[7, 8]]))
    assert decode(asked, right).rows.n == 1
    for byte in set(range(256)) - {array[place]}:
        other = bytearray(array)
        other[place] = byte
        wrong = right.replace(array, bytes(other))
        together = OipFormat.decode_many([right, wrong], [OipFormat(None)] * 2, asked, max_instances=10)
        if 1 in [member for group in together.groups for member in group.members]:
            assert decode(asked, wrong).rows.n == 1  # a space, which only moves the array


@pytest.mark.parametrize("array", [b"[[7, 8]]", b"[7, 8]"], ids=["nested", "flat"])
def test_what_stands_before_an_array_is_white_space_or_refused(array: bytes) -> None:
    asked = model(tensor("x", "uint64", 2))
    right = json_body(described("x", "uint64", [1, 2], data=[7, 8])).replace(b"[7, 8]", array)
    assert decode(asked, right).rows.n == 1
    read = set()
    for byte in range(256):
        other = right.replace(array, bytes((byte,)) + array)
        together = OipFormat.decode_many([right, other], [OipFormat(None)] * 2, asked, max_instances=10)
        if 1 in [member for group in together.groups for member in group.members]:
            read.add(byte)
    assert read == set(b" \t\r\n")
