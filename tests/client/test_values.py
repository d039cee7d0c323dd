from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rowwise.errors import BadAnswer, WrongInputs
from rowwise.values import decode_json, encode_json, from_wire, shortest, to_wire

_NUMBERS = [np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.uint64, np.bool_]


@given(st.sampled_from(_NUMBERS).flatmap(lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0))))
def test_arrays_come_back_bit_for_bit(array):
    body = encode_json(to_wire(array, where="x"))

    back = from_wire(decode_json(body), array.dtype, where="x")

    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@given(st.recursive(st.text() | st.integers() | st.booleans() | st.floats(allow_nan=False), st.lists, max_leaves=20))
def test_plain_values_are_the_json_that_they_look_like(value):
    assert json.loads(encode_json(to_wire(value, where="x"))) == value


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (np.array([[1, 2], [3, 4]], ">i4").T, [[1, 3], [2, 4]]),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([b"a"], object), [{"b64": "YQ=="}]),
        ((1, np.array([2.5])), [1, [2.5]]),
        (bytearray(b"\x00\xff"), {"b64": "AP8="}),
        (np.str_("word"), "word"),
        (2**70, 2**70),
    ],
)
def test_values_of_many_kinds_are_sent(value, wire):
    assert json.loads(encode_json(to_wire(value, where="x"))) == wire


def test_not_a_number_travels_as_its_token():
    body = encode_json({"x": to_wire(np.array([math.nan, math.inf]), where="x"), "y": -math.inf})

    assert body == b'{"x":[NaN,Infinity],"y":-Infinity}'


@pytest.mark.parametrize(
    "value", [None, {"a": 1}, {1, 2}, [None], np.array([None]), np.array(1j), np.datetime64("2020-01-01"), object()]
)
def test_what_no_request_can_carry_is_refused_by_place(value):
    with pytest.raises(WrongInputs, match="input 'x' of example 3"):
        to_wire(value, where="input 'x' of example 3")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, "int32"),
        ([300], "uint8"),
        ([-1], "uint64"),
        (["1.5"], "float32"),
        ([None], "float32"),
        ([1], "bool"),
        ([[1], [1, 2]], "float32"),
        (True, "float32"),
    ],
)
def test_an_answer_that_does_not_fit_its_dtype_is_refused(value, dtype):
    with pytest.raises(BadAnswer, match="output 'y': the server announced"):
        from_wire(value, np.dtype(dtype), where="output 'y'")


def test_integers_on_both_sides_of_the_sign_bit_stay_exact():
    value = [1, 2**63, 2**64 - 1]

    assert from_wire(value, np.dtype("uint64"), where="y").tolist() == value


def test_strings_come_as_text_and_b64_as_bytes():
    assert from_wire(["a", {"b64": "AP8="}], None, where="y").tolist() == ["a", b"\x00\xff"]
    for wrong in (3, ["a", 3], {"b64": "?"}, {"b64": 3}):
        with pytest.raises(BadAnswer, match="announced strings"):
            from_wire(wrong, None, where="y")


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (np.float32(2) ** 0.5, b"1.4142135"),
        (np.array([0.1, 1e-8], np.float32), b"[0.1,1e-8]"),
        (np.int64(2**60), b"1152921504606846976"),
        (np.bool_(1), b"true"),
    ],
)
def test_numbers_print_in_the_shortest_form_of_their_own_precision(value: Any, printed: bytes) -> None:
    assert encode_json(shortest(np.asarray(value))) == printed
