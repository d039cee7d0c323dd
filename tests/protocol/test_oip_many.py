"""Inference requests that are read together are read, and answered, as each would be alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.protocol import OIP_JSON, OipFormat, ReadTogether, WireRequest
from server.protocol.errors import ProtocolError
from server.protocol.rows import Column
from tests.protocol.asked import same_bits
from tests.protocol.oip_models import NUMPY, Model, binary_body, described, json_body, model, octets, tensor

Request = tuple[bytes, int | None]

#: Two outputs: of one dtype that JSON has numbers for, and of any shape.
OUTPUTS = [tensor("y", "float32", 3), tensor("z", "int64")]


def asked(dtype: str, *shape: int | str) -> Model:
    return model(tensor("x", dtype, *shape), outputs=OUTPUTS)


def values(dtype: str, shape: Sequence[int], seed: int) -> Any:
    numbers = np.random.default_rng(seed).integers(0, 2, tuple(shape))
    if dtype == "string":
        made = np.empty(tuple(shape), object)
        made.reshape(-1)[:] = [str(number).encode() for number in numbers.reshape(-1)]
        return made
    return numbers.astype(NUMPY[dtype])


def request(dtype: str, shape: Sequence[int], form: str, seed: int = 0, **more: Any) -> Request:
    array = values(dtype, shape, seed)
    if form == "raw":
        return octets(array), 0
    if form == "binary":
        return binary_body({"x": (dtype, array)}, **more)
    plain = array.astype(str) if dtype == "string" else array
    data = plain.tolist() if form == "nested" else plain.reshape(-1).tolist()
    return json_body(described("x", dtype, shape, data=data), **more), None


def alone(who: Model, one: Request) -> WireRequest:
    return OipFormat(one[1]).decode(one[0], who, max_instances=4)


def together(who: Model, requests: Sequence[Request]) -> ReadTogether:
    return OIP_JSON.decode_many(
        [body for body, _ in requests], [OipFormat(n) for _, n in requests], who, max_instances=4
    )


def outputs_of(who: Model, n_rows: int) -> list[Column]:
    numbers = np.random.default_rng(7)
    return [
        (100 * numbers.standard_normal((n_rows, *[dim for dim in each.shape if isinstance(dim, int)]))).astype(
            NUMPY[each.dtype]
        )
        for each in who.signature.outputs
    ]


def check(who: Model, requests: Sequence[Request], read: ReadTogether) -> int:
    """Hold what was read together against each request alone; return how many those are."""
    seen = list(read.alone)
    for many in read.groups:
        seen += many.members
        total = sum(many.counts)
        outputs = outputs_of(who, total + 3)
        texts = many.form.texts(outputs, total)
        assert many.rows.n == total
        first = 0
        for member, count, id_text in zip(many.members, many.counts, many.id_texts, strict=True):
            expected = alone(who, requests[member])
            assert expected.rows.n == count
            assert (expected.timeout_s, expected.priority) == (None, None)
            for mine, own in zip(many.rows.columns, expected.rows.columns, strict=True):
                for row, other in zip(mine[first : first + count], own, strict=True):
                    assert same_bits(np.asarray(row), np.asarray(other))
            if expected.rows.lengths is not None:
                assert many.rows.lengths is not None
                assert many.rows.lengths[first : first + count] == expected.rows.lengths
            cut = [column[first : first + count] for column in outputs]
            answer = expected.encode(cut)
            assert many.form.one(cut, id_text) == answer
            if texts is not None:
                assert texts.answer(first, first + count, id_text) == answer
            first += count
    assert len(seen) == len(set(seen))
    return sum(len(many.members) for many in read.groups)


IN_BINARY = {"parameters": {"binary_data_output": True}}
FILTER = {"outputs": [{"name": "z"}, {"name": "y", "parameters": {"binary_data": True}}]}


FORMS = ("binary", "nested", "flat", "raw")
NUMBERS = {"float32": (3,), "float64": (2, 2), "int32": (), "bool": (3,), "float16": (4,), "bfloat16": (2,)}


@pytest.mark.parametrize("more", [{}, IN_BINARY, FILTER, {"outputs": [{"name": "y"}]}], ids=str)
@pytest.mark.parametrize(
    ("dtype", "form"),
    [
        (dtype, form)
        for dtype, form in itertools.product(NUMBERS, FORMS)
        if not (dtype in {"float16", "bfloat16"} and form in {"nested", "flat"})
    ],
)
def test_requests_read_together_are_those_that_are_read_alone(dtype: str, form: str, more: dict[str, Any]) -> None:
    shape = NUMBERS[dtype]
    who = asked(dtype, *shape)
    requests = [
        request(dtype, (n, *shape), form, seed, **more, **({"id": f"r{seed}"} if seed % 2 and form != "raw" else {}))
        for seed, n in enumerate([1, 1, 2, 1, 1, 2, 1])
    ]
    assert not together(who, requests).groups, "nobody knows their form"
    for one in requests:
        alone(who, one)
    n_together = check(who, requests, together(who, requests))
    assert n_together == (0 if dtype == "bool" and form in {"nested", "flat"} else len(requests))


def test_one_example_without_a_dimension_of_examples_is_read_and_answered_so() -> None:
    who = asked("float32", 3)
    requests = [request("float32", (3,), form, seed) for seed in range(3) for form in ("binary", "flat")]
    for one in requests:
        alone(who, one)
    assert check(who, requests, together(who, requests)) == 6


@pytest.mark.parametrize("form", ["binary", "nested", "flat", "raw"])
@pytest.mark.parametrize(("dtype", "shape"), [("float32", ("n",)), ("float32", ("n", 2)), ("string", ())])
def test_what_varies_is_read_one_by_one_and_answered_together(dtype: str, shape: tuple[Any, ...], form: str) -> None:
    who = asked(dtype, *shape)
    requests = [
        request(dtype, (1, *[length if dim == "n" else dim for dim in shape]), form, length) for length in (1, 8, 3, 1)
    ]
    if dtype == "string" and form == "raw":
        requests = [(b"abc", 0), (b"abd", 0)]
    for one in requests:
        alone(who, one)
    read = together(who, requests)
    assert check(who, requests, read) == len(requests)
    assert len(read.groups) == 1


def test_several_inputs_come_in_any_order() -> None:
    who = model(
        tensor("a", "float32", 2),
        tensor("b", "int32"),
        tensor("c", "uint8", 1),
        outputs=OUTPUTS,
    )
    arrays = {
        "a": ("float32", np.float32([[1, 2]])),
        "b": ("int32", np.int32([3])),
        "c": ("uint8", np.uint8([[4]])),
    }
    requests: list[Request] = [
        binary_body({name: arrays[name] for name in order}) for order in itertools.permutations("abc")
    ]
    mixed = json_body(
        described("b", "int32", (1,), data=[5]),
        described("a", "float32", (1, 2), parameters={"binary_data_size": 8}),
        described("c", "uint8", (1, 1), data=[[6]]),
    )
    requests += [(mixed + np.float32([7, 8]).tobytes(), len(mixed))] * 2
    for one in requests:
        alone(who, one)
    assert check(who, requests, together(who, requests)) == len(requests)


@pytest.mark.parametrize("own", [{"timeout": 5}, {"priority": 3}])
def test_a_deadline_or_priority_of_its_own_is_for_one_alone(own: dict[str, int]) -> None:
    who = asked("float32", 3)
    one = request("float32", (1, 3), "binary", parameters=own)
    alone(who, one)
    assert together(who, [one, one]).alone == [0, 1]


def test_more_rows_than_may_be_asked_are_for_one_alone() -> None:
    who = asked("float32", 3)
    one = request("float32", (4, 3), "binary")
    alone(who, one)
    read = OIP_JSON.decode_many([one[0]], [OipFormat(one[1])], who, max_instances=3)
    assert read.alone == [0]
    assert not read.groups


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(FORMS), st.integers(1, 2), st.integers(0, 9)), min_size=1, max_size=5),
    st.data(),
)
def test_whatever_is_done_to_a_body_nobody_gets_another_answer(
    asks: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    who = asked("float32", 2)
    requests = [request("float32", (n, 2), form, seed) for form, n, seed in asks]
    for one in requests:
        alone(who, one)
    victim = data.draw(st.integers(0, len(requests) - 1))
    body, n_json = requests[victim]
    at = data.draw(st.integers(0, len(body)))
    piece = data.draw(
        st.sampled_from([b"", b"[", b"]", b",", b"{", b"}", b'"', b"1", b"],[", b"]}", b" ", b"[1,2],", b'"data":[1]'])
    )
    body = body[:at] + piece + body[at + data.draw(st.integers(0, 3)) :]
    requests[victim] = body, data.draw(st.sampled_from([n_json, None, 0, len(body), len(body) + 1]))
    read = together(who, requests)
    try:
        check(who, requests, read)
    except ProtocolError as error:
        raise AssertionError(f"read together, refused alone: {requests[victim]!r}") from error


def test_outputs_that_cannot_be_cut_are_written_one_by_one() -> None:
    who = model(tensor("x", "float32", 2), outputs=[tensor("s", "string"), tensor("y", "float32", 1)])
    one = request("float32", (1, 2), "binary")
    strings = np.array([b"a", b"\xff"], object)
    numbers = np.float32([[1], [2]])
    alone(who, one)
    (many,) = together(who, [one, one]).groups
    assert many.form.texts([strings, numbers], 2) is None
    only = request("float32", (1, 2), "flat", outputs=[{"name": "y"}])
    alone(who, only)
    (many,) = together(who, [only, only]).groups
    assert many.form.texts([strings, numbers], 2) is not None
    assert many.form.texts([strings, np.float32([[1], [np.nan]])], 2) is None
