"""Properties of the Open Inference Protocol's codec that no list of cases can show."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from server.protocol import ProtocolError, WireRequest
from server.protocol.oip_codec import OipCodec
from server.protocol.oip_datatypes import DATATYPES, ONLY_BINARY
from server.protocol.oip_form import message_of, split
from server.signature import TensorSignature
from tests.protocol.oip_models import NUMPY, Model, binary_body, described, model, octets

SHAPES: list[tuple[int | str, ...]] = [(), (2,), (1,), (0,), (2, 3), ("n",), ("n", 2), (2, "n")]
TENSORS = st.builds(
    lambda name, dtype, shape: TensorSignature(name=name, dtype=dtype, shape=shape),
    st.just("x"),
    st.sampled_from(sorted(DATATYPES)),
    st.sampled_from(SHAPES),
)
OTHERS = st.builds(
    lambda dtype, optional: TensorSignature(
        name="other", dtype="int64" if optional else dtype, shape=(), is_optional=optional
    ),
    st.sampled_from(sorted(DATATYPES)),
    st.booleans(),
)
MODELS = st.one_of(TENSORS.map(model), st.tuples(TENSORS, OTHERS).map(lambda both: model(*both)))
LEAVES = st.one_of(
    st.integers(-300, 300),
    st.floats(),
    st.sampled_from(
        [2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**25, 1e39, 65520.0, 1.0, True, None, {"b64": "AAE="}]
    ),
    st.text(max_size=3),
    st.sampled_from(['"data":[1]', "]}],", "[", "]]"]),
)
MESSY = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4), max_leaves=10)


def scalar(dtype: str) -> st.SearchStrategy[Any]:
    if dtype == "bool":
        return st.booleans()
    if dtype == "string":
        return st.one_of(st.text(max_size=3), st.sampled_from(["]", '"', "[1]"]))
    if dtype.startswith("float") or dtype == "bfloat16":
        return st.one_of(st.integers(-3, 3), st.floats(width=16))
    limits = np.iinfo(dtype)
    return st.integers(int(limits.min), int(limits.max))


@st.composite
def tensors(draw: st.DrawFn, asked: Model, *, mess: bool) -> list[tuple[TensorSignature, list[int], Any]]:
    """Values for the inputs of a model, nested or flat; with ``mess`` not always ones that fit."""
    n = draw(st.integers(0 if mess else 1, 3))
    length = draw(st.integers(0, 9 if mess else 8))
    found = []
    for each in asked.signature.inputs:
        if each.is_optional and draw(st.booleans()):
            continue
        shape = [n, *(dim if isinstance(dim, int) else length for dim in each.shape)]
        size = math.prod(shape)
        data: Any = draw(st.lists(scalar(each.dtype), min_size=size, max_size=size))
        if draw(st.booleans()):
            array = np.empty(size, object)
            array[:] = data
            data = array.reshape(shape).tolist()
        if mess and draw(st.integers(0, 3)) == 0:
            data = draw(MESSY)
        if mess and draw(st.integers(0, 5)) == 0:
            shape = draw(st.lists(st.integers(-1, 3), max_size=4))
        found.append((each, shape, data))
    return found


def read(codec: OipCodec, body: bytes, n_json: int | None) -> WireRequest | str:
    """Return the request, or the sentence of why it is none. What else is raised is a bug."""
    try:
        return codec.decode(body, n_json=n_json, max_instances=3)
    except ProtocolError as error:
        return str(error)


def content(request: WireRequest | str) -> Any:
    """Return all that there is to a request, to compare; seeds that were drawn are not."""
    if isinstance(request, str):
        return request
    rows = request.rows
    columns = [
        [(row.dtype, row.shape, octets(np.ascontiguousarray(row))) for row in column]
        if isinstance(column, list)
        else (column.dtype, column.shape, octets(np.ascontiguousarray(column)))
        for column in rows.columns
    ]
    return rows.n, rows.lengths, columns[:1]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_whatever_comes_is_read_or_refused_and_the_same_when_its_form_is_known(data: st.DataObject) -> None:
    asked = data.draw(MODELS)
    sent = data.draw(tensors(asked, mess=True))
    inputs = [described(each.name, each.dtype, shape, data=value) for each, shape, value in sent]
    message: dict[str, Any] = {"inputs": inputs}
    for each in inputs:
        if data.draw(st.integers(0, 5)) == 0:
            each[data.draw(st.sampled_from(["name", "shape", "datatype", "data", "parameters"]))] = data.draw(MESSY)
    if data.draw(st.integers(0, 5)) == 0:
        message[data.draw(st.sampled_from(["id", "parameters", "outputs", "inputs", "else"]))] = data.draw(MESSY)
    separators = data.draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    body = json.dumps(message, separators=separators).encode()
    if data.draw(st.integers(0, 5)) == 0:
        place = data.draw(st.integers(0, len(body) - 1))
        body = body[:place] + data.draw(st.binary(max_size=2)) + body[place + 1 :]
    n_json = data.draw(st.one_of(st.none(), st.none(), st.integers(0, len(body) + 1)))
    codec = OipCodec(asked)
    first, second = read(codec, body, n_json), read(codec, body, n_json)
    assert content(first) == content(second)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_json_and_binary_make_the_same_rows(data: st.DataObject) -> None:
    asked = data.draw(MODELS)
    sent = data.draw(tensors(asked, mess=False))
    codec = OipCodec(asked)
    arrays = {}
    for each, shape, value in sent:
        flat = value
        while len(flat) and isinstance(flat[0], list):
            flat = [inner for outer in flat for inner in outer]
        array = np.empty(math.prod(shape), NUMPY[each.dtype])
        array[:] = (
            [text.encode() for text in flat if isinstance(text, str)] if each.dtype == "string" else flat[: array.size]
        )
        arrays[each.name] = (each.dtype, array.reshape(shape))
    body, n_json = binary_body(arrays)
    in_binary = read(codec, body, n_json)
    assert not isinstance(in_binary, str), in_binary
    if any(DATATYPES[each.dtype] in ONLY_BINARY for each, _, _ in sent):
        return
    inputs = [described(each.name, each.dtype, shape, data=value) for each, shape, value in sent]
    for indent in (None, 1):
        in_json = read(codec, json.dumps({"inputs": inputs}, indent=indent).encode(), None)
        assert not isinstance(in_json, str), in_json
        assert len(in_json.rows.columns) == len(in_binary.rows.columns)
        assert content(in_json) == content(in_binary)
        if all(not each.is_optional for each in asked.signature.inputs):
            assert [octets(np.asarray(column)) for column in in_json.rows.columns if not isinstance(column, list)] == [
                octets(np.asarray(column)) for column in in_binary.rows.columns if not isinstance(column, list)
            ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(MESSY, min_size=1, max_size=3),
    st.sampled_from([(",", ":"), (", ", ": ")]),
    st.sampled_from(['"data":[7]', "plain", "", '"id":"x"', "ä"]),
)
def test_a_form_that_is_recognized_is_what_surrounds_the_values(
    values: list[Any], separators: tuple[str, str], request_id: str
) -> None:
    inputs = [{"name": "x", "shape": [1], "datatype": "FP32", "data": value} for value in values]
    text = json.dumps({"inputs": inputs, "id": request_id}, separators=separators).encode()
    parts = split(text)
    if parts is None or message_of(parts[0]) is None:
        return
    assert len(parts[1]) == len(values)
    for cut, value in zip(parts[1], values, strict=True):
        # Each piece that was cut out is a whole value; NaN is not equal to itself.
        assert json.dumps(json.loads(cut)) == json.dumps(value)
    assert parts[2] is None or json.loads(parts[2]) == request_id


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), st.one_of(st.none(), st.integers(0, 61)), MODELS)
def test_any_bytes_are_read_or_refused(body: bytes, n_json: int | None, asked: Model) -> None:
    read(OipCodec(asked), body, n_json)
