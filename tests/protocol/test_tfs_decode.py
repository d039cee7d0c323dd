"""What ``:predict`` bodies become, and with which sentence they are refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from server.protocol import (
    EmptyRequest,
    MalformedRequest,
    PredictRequest,
    ProtocolError,
    TooManyInstances,
    UnknownSignature,
    WrongDtype,
    WrongKeys,
    WrongShape,
    decode_predict,
)
from server.signature import LengthAxis, ModelSignature, TensorSignature

OUTPUT = TensorSignature(name="y", dtype="float32", shape=())
AXIS = LengthAxis(name="n", max=5, buckets=(5,))


def signature(*inputs: tuple[str, str, tuple[int | str, ...]], axes: tuple[LengthAxis, ...] = ()) -> ModelSignature:
    """A signature with these (name, dtype, shape) inputs and one scalar output."""
    tensors = tuple(TensorSignature(name=name, dtype=dtype, shape=shape) for name, dtype, shape in inputs)
    return ModelSignature(inputs=tensors, outputs=(OUTPUT,), axes=axes)


SCALAR = signature(("x", "float32", ()))
VECTOR = signature(("x", "float32", (3,)))
MATRIX = signature(("x", "float32", (2, 4)))
PAIR = signature(("a", "float32", (2,)), ("b", "int32", ()))
TEXT = signature(("s", "string", ()))
SEQUENCE = signature(("t", "int32", ("n",)), axes=(AXIS,))
FLOAT_SEQUENCE = signature(("t", "float32", ("n",)), axes=(AXIS,))
VECTORS = signature(("t", "float32", ("n", 2)), ("m", "bool", ("n",)), axes=(AXIS,))


def decode(body: bytes | dict[str, Any], model: ModelSignature, *, limit: int = 100) -> PredictRequest:
    """Decode a body that is given as bytes or as the JSON value."""
    return decode_predict(body if isinstance(body, bytes) else json.dumps(body).encode(), model, max_instances=limit)


def column(request: PredictRequest, index: int = 0) -> Any:
    """Return a column as plain lists."""
    value = request.rows.columns[index]
    return [row.tolist() for row in value] if isinstance(value, list) else value.tolist()


def test_rows_of_a_single_input_are_bare_values() -> None:
    request = decode({"instances": [[1, 2.5, 3], [4, 5, 6]]}, VECTOR)
    assert request.row_form
    assert request.rows.n == 2
    assert request.rows.lengths is None
    (x,) = request.rows.columns
    assert isinstance(x, np.ndarray)
    assert x.dtype == np.float32
    assert x.tolist() == [[1, 2.5, 3], [4, 5, 6]]


def test_a_single_input_may_be_sent_by_name() -> None:
    assert column(decode({"instances": [{"x": [1, 2, 3]}]}, VECTOR)) == [[1, 2, 3]]
    assert column(decode({"inputs": {"x": [[1, 2, 3]]}}, VECTOR)) == [[1, 2, 3]]


def test_scalars_are_rows_too() -> None:
    assert column(decode({"instances": [1, 2.5]}, SCALAR)) == [1, 2.5]
    assert column(decode({"inputs": [1, 2.5]}, SCALAR)) == [1, 2.5]


def test_matrices_keep_their_order() -> None:
    values = np.arange(16).reshape(2, 2, 4).tolist()
    assert column(decode({"instances": values}, MATRIX)) == values


def test_several_inputs_come_as_objects_or_as_columns() -> None:
    by_row = decode({"instances": [{"b": 7, "a": [1, 2]}, {"a": [3, 4], "b": 8}]}, PAIR)
    by_column = decode({"inputs": {"b": [7, 8], "a": [[1, 2], [3, 4]]}}, PAIR)
    for request in (by_row, by_column):
        assert column(request, 0) == [[1, 2], [3, 4]]
        assert column(request, 1) == [7, 8]
        assert request.rows.columns[1].dtype == np.int32  # type: ignore[union-attr]
    assert by_row.row_form
    assert not by_column.row_form


def test_each_example_keeps_its_own_length() -> None:
    for model, dtype in ((SEQUENCE, np.int32), (FLOAT_SEQUENCE, np.float32)):
        for key in ("instances", "inputs"):
            request = decode({key: [[1, 2, 3], [], [4, 5, 6, 7, 8]]}, model)
            rows = request.rows.columns[0]
            assert isinstance(rows, list)
            assert [row.tolist() for row in rows] == [[1, 2, 3], [], [4, 5, 6, 7, 8]]
            assert all(row.dtype == dtype for row in rows)
            assert request.rows.lengths == [(3,), (0,), (5,)]


def test_inputs_that_share_a_length_are_read_together() -> None:
    request = decode({"instances": [{"t": [[1, 2]], "m": [True]}, {"t": [], "m": []}]}, VECTORS)
    assert request.rows.lengths == [(1,), (0,)]
    assert [row.shape for row in request.rows.columns[0]] == [(1, 2), (0, 2)]
    assert column(request, 1) == [[True], []]


def test_inputs_that_share_a_length_must_agree() -> None:
    with pytest.raises(WrongShape) as caught:
        decode({"instances": [{"t": [[1, 2]], "m": [True]}, {"t": [[1, 2]], "m": []}]}, VECTORS)
    assert str(caught.value) == (
        "input 'm' of instance 1: its length is 0, but input 't' of the same example has 1; "
        "send both at the same length"
    )


def test_strings_are_text_or_base64() -> None:
    raw = base64.b64encode(b"\xff\x00").decode()
    request = decode({"instances": ["é", {"b64": raw}, {"s": "x"}, {"s": {"b64": raw}}]}, TEXT)
    assert column(request) == ["é".encode(), b"\xff\x00", b"x", b"\xff\x00"]


def test_not_a_number_and_infinities_are_tokens() -> None:
    x = decode(b'{"instances": [[NaN, Infinity, -Infinity]]}', VECTOR).rows.columns[0]
    assert np.isnan(x[0][0])
    assert x[0][1:].tolist() == [np.inf, -np.inf]


def test_integers_beyond_two_to_the_53_stay_exact() -> None:
    for dtype, value in (("int64", 2**53 + 1), ("int64", -(2**63)), ("int64", 2**63 - 1), ("uint64", 2**64 - 1)):
        assert column(decode({"instances": [value]}, signature(("x", dtype, ())))) == [value]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_out_of_range_are_refused(dtype: str) -> None:
    model = signature(("x", dtype, ()))
    info = np.iinfo(dtype)
    assert column(decode({"instances": [int(info.min), int(info.max)]}, model)) == [info.min, info.max]
    for value in (int(info.min) - 1, int(info.max) + 1, 10**30, 10**4200):
        with pytest.raises(WrongDtype, match=rf"input 'x' of instance 1: expected {dtype}, got "):
            decode({"instances": [1, value]}, model)


@pytest.mark.parametrize("text", ["1.5", "1.0", "1e2", "NaN"])
def test_integers_refuse_decimal_points(text: str) -> None:
    for dtype in ("int32", "int64", "uint64"):
        with pytest.raises(WrongDtype, match=f"expected {dtype}, got .*write whole numbers without point"):
            decode(b'{"instances": [%s]}' % text.encode(), signature(("x", dtype, ())))


def test_booleans_are_true_and_false_only() -> None:
    model = signature(("x", "bool", ()))
    assert column(decode({"instances": [True, False]}, model)) == [True, False]
    for value in (0, 1, "true", None):
        with pytest.raises(WrongDtype, match="send true or false"):
            decode({"instances": [value]}, model)


@pytest.mark.parametrize("value", [True, False, None, "1.5", {"b64": "AA=="}, {"x": 1}])
@pytest.mark.parametrize("model", [VECTOR, signature(("x", "int64", (3,)))])
def test_what_is_no_number_is_refused_as_one(value: object, model: ModelSignature) -> None:
    with pytest.raises(WrongDtype, match=r"input 'x' of instance 1\[2\]: expected (float32|int64), got "):
        decode({"instances": [[1, 2, 3], [1, 2, value]]}, model)


@pytest.mark.parametrize(("dtype", "largest"), [("float16", 65504.0), ("float32", 3.4028235e38), ("bfloat16", 3.38e38)])
def test_a_float_past_the_largest_is_refused_and_not_made_infinite(dtype: str, largest: float) -> None:
    model = signature(("x", dtype, (1,)))
    x = decode({"instances": [[largest], [-largest]]}, model).rows.columns[0]
    assert np.isfinite(x.astype(np.float64)).all()  # type: ignore[union-attr]
    with pytest.raises(WrongDtype, match=rf"input 'x' of instance 1\[0\]: expected {dtype}, got 1e\+39"):
        decode({"instances": [[1], [1e39]]}, model)


def test_large_floats_within_range_are_not_mistaken_for_overflow() -> None:
    x = decode({"instances": [[3e38, -3e38, 3e38]]}, VECTOR).rows.columns[0]
    assert x.tolist() == [[float(np.float32(v)) for v in (3e38, -3e38, 3e38)]]  # type: ignore[union-attr]


def test_numbers_that_no_double_holds_are_refused() -> None:
    model = signature(("x", "float64", ()))
    with pytest.raises(MalformedRequest, match="the number 1e400 is out of range; write Infinity"):
        decode(b'{"instances": [1e400]}', model)
    with pytest.raises(WrongDtype, match="an integer of 401 digits; float64 can't hold it"):
        decode(b'{"instances": [1%s, NaN]}' % (b"0" * 400), model)


def test_half_precision_rounds_to_nearest() -> None:
    values = [0.1, 1 / 3, 65504.0, 1e-8]
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = decode({"instances": values}, signature(("x", np.dtype(dtype).name, ()))).rows.columns[0]
        assert x.dtype == dtype  # type: ignore[union-attr]
        assert x.tolist() == np.array(values, dtype).tolist()  # type: ignore[union-attr]


SENTENCES: list[tuple[str, ModelSignature, bytes, type[ProtocolError], str]] = [
    ("empty body", VECTOR, b"", MalformedRequest,
     "the body is empty: send a JSON object with 'instances' or 'inputs'"),
    ("not json", VECTOR, b'{"instances": [1,', MalformedRequest,
     "the body is not JSON: Expecting value: line 1 column 18 (char 17)"),
    ("not utf-8", VECTOR, b'"\xff"', MalformedRequest, "the body is not UTF-8: invalid start byte at byte 1"),
    ("nested too deeply", VECTOR, b"[" * 20_000 + b"]" * 20_000, MalformedRequest,
     "the body is nested too deeply to be read"),
    ("nested too deeply inside", VECTOR, b'{"instances":' + b"[" * 20_000 + b"]" * 20_000 + b"}", MalformedRequest,
     "the body is nested too deeply to be read"),
    ("not an object", VECTOR, b"[1]", MalformedRequest,
     "expected a JSON object with 'instances' or 'inputs', got an array; send {\"instances\": [...]}"),
    ("both forms", VECTOR, b'{"instances": [[1,2,3]], "inputs": [[1,2,3]]}', WrongKeys,
     "the request has both 'instances' and 'inputs'; send one of them"),
    ("neither form", VECTOR, b'{"instance": [[1,2,3]]}', WrongKeys,
     "the request has neither 'instances' nor 'inputs', but 'instance'; send one of them"),
    ("instances no array", VECTOR, b'{"instances": null}', MalformedRequest,
     "'instances' must be an array of examples, got null"),
    ("no instances", VECTOR, b'{"instances": []}', EmptyRequest, "'instances' is empty: send at least one example"),
    ("no columns", PAIR, b'{"inputs": {"a": [], "b": []}}', EmptyRequest,
     "'inputs' is empty: send at least one example"),
    ("signature name", VECTOR, b'{"signature_name": 3, "instances": [[1,2,3]]}', MalformedRequest,
     "'signature_name' must be a string, got 3"),
    ("unknown signature", VECTOR, b'{"signature_name": "train", "instances": [[1,2,3]]}', UnknownSignature,
     "signature_name 'train' is unknown: this model answers to 'serving_default', or to none at all"),
    ("too short", VECTOR, b'{"instances": [[1,2,3],[1,2]]}', WrongShape,
     "input 'x' of instance 1: expected float32[3], got [2]; send this shape"),
    ("batch dimension", VECTOR, b'{"instances": [[[1,2,3]]]}', WrongShape,
     ("input 'x' of instance 0: expected float32[3], got [1, 3]; leave the batch dimension out: "
     "an instance is one example")),
    ("scalar for vector", VECTOR, b'{"instances": [1]}', WrongShape,
     "input 'x' of instance 0: expected float32[3], got a single value; send this shape"),
    ("vector for scalar", SCALAR, b'{"instances": [[1, 2]]}', WrongShape,
     "input 'x' of instance 0: expected float32, got [2]; send one value without brackets"),
    ("ragged", MATRIX, b'{"instances": [[[1,2,3,4],[5,6,7]]]}', WrongShape,
     ("input 'x' of instance 0: expected float32[2, 4], got an array of 3 where its neighbours are arrays of 4; "
     "make all of them equally long")),
    ("rows of 3 and 5", MATRIX, b'{"instances": [[[1,2,3],[4,5,6,7,8]]]}', WrongShape,
     "input 'x' of instance 0: expected float32[2, 4], got [2, 3]; send this shape"),
    ("array as value", VECTOR, b'{"instances": [[1,2,[3]]]}', WrongShape,
     "input 'x' of instance 0[2]: expected float32[3], got an array where a value belongs; send this shape"),
    ("arrays that add up", VECTOR, b'{"instances": [[1,[],[2,3]]]}', WrongShape,
     "input 'x' of instance 0[1]: expected float32[3], got an array where a value belongs; send this shape"),
    ("too long", SEQUENCE, b'{"instances": [[1,2,3,4,5,6]]}', WrongShape,
     "input 't' of instance 0: expected int32[<=5], got [6]; shorten it to 5"),
    ("bare value, two inputs", PAIR, b'{"instances": [[1, 2]]}', WrongKeys,
     "instance 0: expected an object with the keys 'a', 'b', got an array"),
    ("missing input", PAIR, b'{"instances": [{"a": [1, 2]}]}', WrongKeys,
     "instance 0: input 'b' is missing; send exactly 'a', 'b'"),
    ("unknown input", PAIR, b'{"instances": [{"a": [1, 2], "b": 1, "c": 1}]}', WrongKeys,
     "instance 0: 'c' is no input of this model; send exactly 'a', 'b'"),
    ("unknown column", PAIR, b'{"inputs": {"a": [[1, 2]], "z": [1]}}', WrongKeys,
     "'inputs': input 'b' is missing; 'z' is no input of this model; send exactly 'a', 'b'"),
    ("bare columns, two inputs", PAIR, b'{"inputs": [1]}', WrongKeys,
     "'inputs': expected an object with the keys 'a', 'b', got an array"),
    ("columns of unlike length", PAIR, b'{"inputs": {"a": [[1, 2]], "b": [1, 2]}}', WrongShape,
     "input 'b' has 2 examples, input 'a' has 1; send as many of each"),
    ("column no array", SCALAR, b'{"inputs": 3}', WrongShape,
     "input 'x': expected an array with one entry for each example, got 3"),
    ("float for integer", PAIR, b'{"instances": [{"a": [1, 2], "b": 1.0}]}', WrongDtype,
     ("input 'b' of instance 0: expected int32, got 1.0; write whole numbers without point and exponent, "
     "within its range")),
    ("string for number", VECTOR, b'{"instances": [[1, 2, "3"]]}', WrongDtype,
     "input 'x' of instance 0[2]: expected float32, got \"3\"; send a number"),
    ("base64 for number", SCALAR, b'{"instances": [3, "b64"]}', WrongDtype,
     "input 'x' of instance 1: expected float32, got \"b64\"; send a number"),
    ("number for string", TEXT, b'{"instances": [3]}', WrongDtype,
     "input 's' of instance 0: expected string, got 3; send a string or {\"b64\": \"...\"}"),
    ("bad base64", TEXT, b'{"instances": [{"b64": "***"}]}', WrongDtype,
     "input 's' of instance 0: the value of 'b64' is not base64: Only base64 data is allowed"),
    ("half a character", TEXT, b'{"instances": ["\\ud800"]}', WrongDtype,
     "input 's' of instance 0: half of a surrogate pair is no character; send bytes as {\"b64\": \"...\"}"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "body", "error", "sentence"), [case[1:] for case in SENTENCES],
                         ids=[case[0] for case in SENTENCES])  # fmt: skip
def test_a_wrong_request_gets_its_error_and_sentence(
    model: ModelSignature, body: bytes, error: type[ProtocolError], sentence: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(body, model)
    assert type(caught.value) is error
    assert str(caught.value) == sentence


def test_more_examples_than_allowed_are_refused() -> None:
    assert decode({"instances": [1] * 10}, SCALAR, limit=10).rows.n == 10
    for model, body in (
        (SCALAR, {"instances": [1] * 11}),
        (SCALAR, {"inputs": [1] * 11}),
        (TEXT, {"inputs": ["a"] * 11}),
    ):
        with pytest.raises(TooManyInstances, match="holds 11 examples, at most 10 are allowed"):
            decode(body, model, limit=10)


def test_a_thousand_rows_are_one_request() -> None:
    values = np.random.default_rng(0).standard_normal((1_000, 3)).astype(np.float32)
    assert np.array_equal(decode({"instances": values.tolist()}, VECTOR, limit=1_000).rows.columns[0], values)


def test_a_request_longer_than_the_shared_parser_takes_is_read_the_same() -> None:
    values = np.random.default_rng(0).standard_normal((30_000, 3)).astype(np.float32)
    body = json.dumps({"instances": values.astype(float).tolist()}).encode()
    assert len(body) > 2**20
    assert np.array_equal(decode(body, VECTOR, limit=30_000).rows.columns[0], values)


def test_a_dtype_that_json_has_no_form_for_is_refused_in_a_sentence() -> None:
    with pytest.raises(WrongDtype, match="input 'x' is complex64, which JSON has no form for"):
        decode({"instances": [1]}, signature(("x", "complex64", ())))


def test_keys_that_other_servers_know_are_passed_over() -> None:
    assert column(decode({"instances": [[1, 2, 3]], "parameters": {"a": [1]}}, VECTOR)) == [[1, 2, 3]]


def test_the_default_signature_may_be_named() -> None:
    for name in ("serving_default", "", None):
        assert column(decode({"signature_name": name, "instances": [[1, 2, 3]]}, VECTOR)) == [[1, 2, 3]]


def test_input_names_that_are_no_identifiers_work() -> None:
    for name in ("x:0", 'quo"te', "back\\slash", "новый", "b64", ""):
        model = signature((name, "float32", (2,)), ("b", "int32", ()))
        assert column(decode({"instances": [{name: [1, 2], "b": 3}]}, model)) == [[1, 2]]


def test_zero_sized_inputs_are_read() -> None:
    model = signature(("x", "float32", (0, 3)), ("y", "float32", (2, 0)))
    request = decode({"instances": [{"x": [], "y": [[], []]}] * 2}, model)
    assert [c.shape for c in request.rows.columns] == [(2, 0, 3), (2, 2, 0)]  # type: ignore[union-attr]


SEED = TensorSignature(name="seed", dtype="int64", shape=(), is_optional=True)
SEEDED = ModelSignature(inputs=(*VECTOR.inputs, SEED), outputs=(OUTPUT,))
SEEDED_PAIR = ModelSignature(inputs=(SEED, *PAIR.inputs), outputs=(OUTPUT,))
SEEDED_TEXT = ModelSignature(inputs=(*TEXT.inputs, SEED), outputs=(OUTPUT,))


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [[1, 2, 3], [4, 5, 6]]},
        {"instances": [{"x": [1, 2, 3]}, {"x": [4, 5, 6]}]},
        {"inputs": {"x": [[1, 2, 3], [4, 5, 6]]}},
        {"inputs": [[1, 2, 3], [4, 5, 6]]},
        b'{"instances": [[1, 2, 3], [4, 5, 6e0]], "signature_name": "serving_default"}',
    ],
)
def test_request_without_a_seed_gets_fresh_ones(body: bytes | dict[str, Any]) -> None:
    first, second = decode(body, SEEDED), decode(body, SEEDED)
    assert column(first) == [[1, 2, 3], [4, 5, 6]]
    seeds = np.concatenate([first.rows.columns[1], second.rows.columns[1]])
    assert seeds.dtype == np.int64
    assert len(np.unique(seeds)) == 4


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [{"x": [1, 2, 3], "seed": 5}, {"x": [4, 5, 6], "seed": -(2**63)}]},
        {"inputs": {"x": [[1, 2, 3], [4, 5, 6]], "seed": [5, -(2**63)]}},
    ],
)
def test_seed_that_is_sent_is_taken_as_it_is(body: dict[str, Any]) -> None:
    request = decode(body, SEEDED)
    assert column(request, 1) == [5, -(2**63)]
    assert column(request) == [[1, 2, 3], [4, 5, 6]]


def test_some_examples_may_have_a_seed_and_others_none() -> None:
    request = decode({"instances": [{"x": [1, 2, 3], "seed": 5}, {"x": [4, 5, 6]}, [7, 8, 9]]}, SEEDED)
    assert column(request) == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert column(request, 1)[0] == 5
    assert len(set(column(request, 1))) == 3


def test_seed_may_stand_before_other_inputs_and_beside_strings() -> None:
    request = decode({"instances": [{"b": 1, "a": [1, 2]}]}, SEEDED_PAIR)
    assert [np.shape(values) for values in request.rows.columns] == [(1,), (1, 2), (1,)]
    assert column(decode({"instances": [{"b64": "eA=="}]}, SEEDED_TEXT)) == [b"x"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"instances": [{"seed": 5}]}, "input 'x' is missing; send exactly 'x', and 'seed' if you like"),
        ({"instances": [{"x": [1, 2, 3], "sed": 5}]}, "'sed' is no input of this model"),
        ({"inputs": {"seed": [5]}}, "input 'x' is missing"),
        ({"inputs": {"x": [[1, 2, 3]], "seed": [5, 6]}}, "input 'seed' has 2 examples, input 'x' has 1"),
        ({"instances": [{"x": [1, 2, 3], "seed": 1.5}]}, "input 'seed' of instance 0: expected int64, got 1.5"),
    ],
)
def test_optional_input_excuses_nothing_else(body: dict[str, Any], says: str) -> None:
    with pytest.raises(ProtocolError, match=says):
        decode(body, SEEDED)
