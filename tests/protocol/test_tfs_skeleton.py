"""Nested numbers whose structure is told by their brackets alone: all that is taken is right, and rows are taken."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.protocol import ProtocolError
from server.protocol.tfs_exact import ExactReader
from server.protocol.tfs_skeleton import SkeletonReader
from server.signature import LengthAxis, ModelSignature, TensorSignature

SHAPES: list[tuple[int | str, ...]] = [(2, 1), (1, 2), (2, 2, 1), (3, 1, 2), ("n", 1), ("n", 2), ("n", 2, 2)]


def model(shape: tuple[int | str, ...], dtype: str = "float32") -> ModelSignature:
    axes = (LengthAxis(name="n", max=3, buckets=(3,)),) if "n" in shape else ()
    return ModelSignature(inputs=(TensorSignature(name="x", dtype=dtype, shape=shape),), outputs=(), axes=axes)


def reader_of(shape: tuple[int | str, ...], dtype: str = "float32") -> SkeletonReader:
    found = SkeletonReader.compile(model(shape, dtype))
    assert found is not None
    return found


def values(shape: tuple[int | str, ...], length: int) -> Any:
    full = [length if dim == "n" else int(dim) for dim in shape]
    return (np.arange(np.prod(full), dtype=np.float64) / 4 - 1).reshape(full).tolist()


def taken(reader: SkeletonReader | ExactReader, body: bytes) -> Any:
    """Return what a reader makes of a body: lengths and numbers; None if it refuses."""
    try:
        request = reader.decode(body, max_instances=3)
    except ProtocolError:
        return None
    if request is None:
        return None
    (column,) = request.rows.columns
    return request.rows.lengths, [np.asarray(row).tolist() for row in column], [np.shape(row) for row in column]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_rows_are_taken_and_are_those_of_the_exact_reader(shape: tuple[int | str, ...], dtype: str) -> None:
    lengths = (2, 0, 3) if "n" in shape else (1, 1, 1)
    for n in (1, 2, 3):
        rows = [values(shape, length or 1) for length in lengths[:n]]
        if dtype == "int64":
            rows = [np.asarray(row).astype(int).tolist() for row in rows]
        for body in (json.dumps({"instances": rows}), json.dumps({"instances": rows}, separators=(",", ":"))):
            found = taken(reader_of(shape, dtype), body.encode())
            assert found is not None
            assert found == taken(ExactReader(model(shape, dtype)), body.encode())
    too_many = json.dumps({"instances": [values(shape, 2)] * 4}).encode()
    assert reader_of(shape).decode(too_many, max_instances=3) is None


@pytest.mark.parametrize(
    "text",
    [
        "[[1[],[2]]]",
        "[1[[],[2]]]",
        "[[[]1,[2]]]",
        "[[[1],2[]]]",
        "[[[1 2],[]]]",
        "[[[1],[2],]]",
        "[[[],[1,2]]]",
        "[[[1][2]]]",
        "[[[1],[]]]",
        "[[[1],[true]]]",
        '[[[1],["2"]]]',
        "[[[1],[2]],]",
        "[[[1],[- 2]]]",
        "[[[1]\x0b,[2]]]",
        "[[[1],[02]]]",
        "[[[1],[2.]]]",
        "[[[1],[NaN]]]",
        "[[[1],[2e]]]",
        "[[[1],[2\x00]]]",
        "[]",
        "[[]]",
        "[[[[1]],[2]]]",
    ],
)
def test_what_is_no_row_is_not_taken(text: str) -> None:
    assert taken(reader_of((2, 1)), b'{"instances":%b}' % text.encode()) is None


@pytest.mark.parametrize(
    "text", ["[[[1,2],]]", "[[[1,2]][[3,4]]]", "[[[1,2]x]]", "[x]", "[[x]]", "[[[1,2],[3,4],[5,6],[7,8]]]"]
)
def test_what_is_no_sequence_is_not_taken(text: str) -> None:
    assert taken(reader_of(("n", 2)), b'{"instances":%b}' % text.encode()) is None


_PIECES = [b"[", b"]", b",", b" ", b"1", b"-", b".", b"e", b"0", b"],[", b"[]", b"][", b"\n", b"x", b'"', b"true"]


@settings(max_examples=600, deadline=None)
@given(
    st.sampled_from(SHAPES),
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 3), st.sampled_from(_PIECES)), max_size=3),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_whatever_is_changed_in_a_body_nothing_is_taken_that_the_exact_reader_refuses(
    shape: tuple[int | str, ...], changes: list[tuple[int, int, bytes]], lengths: list[int]
) -> None:
    body = json.dumps({"instances": [values(shape, length) for length in lengths]}).encode()
    for place, n_gone, piece in changes:
        body = body[:place] + piece + body[place + n_gone :]
    found = taken(reader_of(shape), body)
    if found is not None or not changes:
        assert found == taken(ExactReader(model(shape)), body)


@pytest.mark.parametrize(("piece", "is_row"), [(b"[7]", True), (b"7[]", False), (b"[]7", False), (b"[7", False)])
@pytest.mark.parametrize("place", [0, 500, 999])
def test_long_bodies_are_looked_at_as_closely(place: int, piece: bytes, *, is_row: bool) -> None:
    row = [b"[%d]" % number for number in range(1_000)]
    row[place] = piece
    found = taken(reader_of((1_000, 1)), b'{"instances":[[%b]]}' % b",".join(row))
    assert (found is not None) is is_row


def test_requests_are_read_together() -> None:
    reader = reader_of((2, 1))
    bodies = [json.dumps({"instances": [values((2, 1), 1)] * n}).encode() for n in (1, 3, 2)]
    found = reader.decode_many(bodies, max_instances=3)
    assert found is not None
    column, counts = found
    assert counts == [1, 3, 2]
    assert column.dtype == np.float32
    assert column.tolist() == [values((2, 1), 1)] * 6
    assert reader.decode_many([*bodies, b'{"instances":[[[1],2]]}'], max_instances=3) is None
    assert reader.decode_many(bodies, max_instances=2) is None


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3,), "float32"), ((2, 0), "float32"), ((2, 2), "bool"), ((), "float32")]
)
def test_other_inputs_have_other_readers(shape: tuple[int, ...], dtype: str) -> None:
    assert SkeletonReader.compile(model(shape, dtype)) is None
