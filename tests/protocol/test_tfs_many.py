"""Requests that are read together are read as each would be alone, or not at all."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.protocol import PredictCodec, row_texts
from server.protocol.errors import ProtocolError
from server.protocol.tfs_encode import encode_predict
from server.signature import LengthAxis, ModelSignature, TensorSignature


def codec(*shape: int, dtype: str = "float32") -> PredictCodec:
    x = TensorSignature(name="x", dtype=dtype, shape=shape)
    return PredictCodec(ModelSignature(inputs=(x,), outputs=(x,)))


def body(instances: Any) -> bytes:
    return json.dumps({"instances": instances}).encode()


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3,), "float32"), ((2, 4), "float64"), ((3,), "int64"), ((1,), "float16")]
)
def test_rows_read_together_are_those_that_are_read_alone(shape: tuple[int, ...], dtype: str) -> None:
    reader = codec(*shape, dtype=dtype)
    numbers = np.random.default_rng(0)
    bodies = [body((10 * numbers.standard_normal((n, *shape))).astype(dtype).tolist()) for n in (1, 3, 1, 2)]
    many = reader.decode_many(bodies, max_instances=5)
    assert many is not None
    assert many.counts == [1, 3, 1, 2]
    alone = np.concatenate([reader.decode(one, max_instances=5).rows.columns[0] for one in bodies])
    assert many.column.dtype == alone.dtype
    assert many.column.tobytes() == alone.tobytes()


GOOD = b'{"instances": [[1, 2]]}'


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"{}",
        b'{"instances": []}',
        b'{"instances": [[]]}',
        b'{"instances": [[1]]}',
        b'{"instances": [[1, 2, 3]]}',
        b'{"instances": [[1, 2], [3]]}',
        b'{"instances": [[1, [2]]]}',
        b'{"instances": [1, 2]}',
        b'{"instances": [[1, "2"]]}',
        b'{"instances": [[1, true]]}',
        b'{"instances": [[1, NaN]]}',
        b'{"instances": [[1, 1e39]]}',
        b'{"instances": [[1, 2]], "x": [[1, 2]]}',
        b'{"instances": [[1, 2]]}{"instances": [[1, 2]]}',
        b'{"instances": [[1, 2]],}',
        b'{"instances": [[1, 2],]}',
        b'{"instances": [[1, 2]],[1, 2]]}',
        b'{"instances": [[1, 2]] }',
        b'{"inputs": [[1, 2]]}',
        b'{"instances": [[1, 2], [1, 2], [1, 2]]}',
        b'{"instances": [[1, 2}',
        b'{"instances": [[1, 2]]',
    ],
)
def test_one_unusual_body_and_none_is_read_together(odd: bytes) -> None:
    reader = codec(2)
    for bodies in ([odd], [GOOD, odd], [odd, GOOD], [GOOD, odd, GOOD]):
        assert reader.decode_many(bodies, max_instances=2) is None


def test_bodies_that_only_make_sense_together_are_not_read() -> None:
    """Pieces that complete each other: joined, they are well formed."""
    pairs = [
        (b'{"instances": [[1, 2], [3]}', b'{"instances": [4], [5, 6]]}'),
        (b'{"instances": [[1]}', b'{"instances": [2]]}'),
        (b'{"instances": [[1, 2]]]}', b'{"instances": [[[1, 2]]}'),
        (b'{"instances": [[1, 2], [3]]}', b'{"instances": [[4]]}'),
        (b'{"instances": [[1, 2], "]}', b'{"instances": [", [3, 4]]}'),
    ]
    for pair in pairs:
        assert codec(2).decode_many(pair, max_instances=9) is None
    # Two rows of two, cut in the middle of one.
    assert codec(2, 2).decode_many([b'{"instances": [[[1, 2]]}', b'{"instances": [[3, 4]]]}'], max_instances=9) is None


def test_scalars_and_differing_lengths_are_read_alone() -> None:
    assert codec().decode_many([b'{"instances": [1]}'], max_instances=2) is None
    axis = LengthAxis(name="n", max=4, buckets=(4,))
    x = TensorSignature(name="x", dtype="float32", shape=("n",))
    ragged = PredictCodec(ModelSignature(inputs=(x,), outputs=(x,), axes=(axis,)))
    assert ragged.decode_many([GOOD, GOOD], max_instances=2) is None


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), min_size=1, max_size=2), min_size=1, max_size=4
    ),
    st.data(),
)
def test_whatever_is_done_to_a_body_nobody_gets_another_answer(rows: list[Any], data: st.DataObject) -> None:
    bodies = [body(instances) for instances in rows]
    victim = data.draw(st.integers(0, len(bodies) - 1))
    at = data.draw(st.integers(0, len(bodies[victim])))
    piece = data.draw(
        st.sampled_from([b"", b"[", b"]", b",", b"{", b"}", b'"', b"1", b"],[", b"]]}", b" ", b"[[1,2]],"])
    )
    cut = data.draw(st.integers(0, 3))
    bodies[victim] = bodies[victim][:at] + piece + bodies[victim][at + cut :]
    reader = codec(2)
    many = reader.decode_many(bodies, max_instances=4)
    if many is None:
        return
    first = 0
    for one, count in zip(bodies, many.counts, strict=True):
        try:
            alone = reader.decode(one, max_instances=4).rows
        except ProtocolError as error:
            raise AssertionError(f"read together, refused alone: {one!r}") from error
        assert alone.n == count
        assert (many.column[first : first + count] == alone.columns[0]).all()
        first += count


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,), (2, 0)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_answers_written_together_are_those_that_are_written_alone(shape: tuple[int, ...], dtype: str) -> None:
    output = np.random.default_rng(1).integers(0, 2, (8, *shape)).astype(dtype)
    signature = ModelSignature(inputs=(), outputs=(TensorSignature(name="y", dtype=dtype, shape=shape),))
    texts = row_texts([output], 6)
    if texts is None:
        assert shape == (0,) or shape == (2, 0)
        return
    for start, stop in [(0, 1), (5, 6), (1, 4)]:
        assert texts.body(start, stop) == encode_predict([output[start:stop]], signature, row_form=True)


def test_what_the_writer_has_no_form_for_is_left_to_each_answer() -> None:
    assert row_texts([np.float32([[1.0, math.nan]])], 1) is None
    assert row_texts([np.float16([[1.0]])], 1) is None
    assert row_texts([np.float32([[1.0]]), np.float32([[1.0]])], 1) is None
    assert row_texts([[np.float32([1.0])]], 1) is None
    assert row_texts([np.array([[b"x"]], object)], 1) is None
    # Padding rows are not looked at.
    assert row_texts([np.float32([[1.0], [math.nan]])], 1) is not None
