"""Requests that are read together are read as each would be alone, or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.protocol import ManyRequests, PredictCodec
from server.protocol.errors import ProtocolError
from server.protocol.tfs_many import row_texts
from server.signature import LengthAxis, ModelSignature, TensorSignature


def codec(*shape: int, dtype: str = "float32") -> PredictCodec:
    x = TensorSignature(name="x", dtype=dtype, shape=shape)
    return PredictCodec(ModelSignature(inputs=(x,), outputs=(x,)))


def together(reader: PredictCodec, bodies: Sequence[bytes], *, max_instances: int) -> ManyRequests | None:
    """All of the requests as one, None if one of them is to be read alone."""
    read = reader.decode_many(bodies, max_instances=max_instances)
    if not read.groups:
        return None
    (many,) = read.groups
    assert list(many.members) == list(range(len(bodies)))
    return many


def body(instances: Any) -> bytes:
    return json.dumps({"instances": instances}).encode()


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3,), "float32"), ((2, 4), "float64"), ((3,), "int64"), ((1,), "float16")]
)
def test_rows_read_together_are_those_that_are_read_alone(shape: tuple[int, ...], dtype: str) -> None:
    reader = codec(*shape, dtype=dtype)
    numbers = np.random.default_rng(0)
    bodies = [body((10 * numbers.standard_normal((n, *shape))).astype(dtype).tolist()) for n in (1, 3, 1, 2)]
    many = together(reader, bodies, max_instances=5)
    assert many is not None
    assert many.counts == [1, 3, 1, 2]
    alone = np.concatenate([reader.decode(one, max_instances=5).rows.columns[0] for one in bodies])
    assert many.rows.columns[0].dtype == alone.dtype
    assert many.rows.columns[0].tobytes() == alone.tobytes()


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
        assert together(reader, bodies, max_instances=2) is None


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
        assert together(codec(2), pair, max_instances=9) is None
    # Two rows of two, cut in the middle of one.
    cut = [b'{"instances": [[[1, 2]]}', b'{"instances": [[3, 4]]]}']
    assert together(codec(2, 2), cut, max_instances=9) is None


AXIS = LengthAxis(name="n", max=4, buckets=(4,))
SEVERAL = ModelSignature(
    inputs=(
        TensorSignature(name="n", dtype="float32", shape=("n",)),
        TensorSignature(name="s", dtype="string", shape=()),
        TensorSignature(name="f", dtype="int32", shape=(2,)),
    ),
    outputs=(),
    axes=(AXIS,),
)


def test_what_is_no_one_array_is_read_one_by_one_and_put_together() -> None:
    reader = PredictCodec(SEVERAL)
    rows = [{"n": [0.5] * n, "s": "a" * n, "f": [n, 7]} for n in range(5)]
    bodies = [
        body(rows[:1]),
        body(rows[1:3]),
        b"{",
        body([{}]),
        body(rows[3:]),
        b'{"inputs": {"n": [[1]]}}',
        body(rows),
    ]
    read = reader.decode_many(bodies, max_instances=4)
    (many,) = read.groups
    assert (list(many.members), many.counts, read.alone) == ([0, 1, 4], [1, 2, 2], [2, 3, 5, 6])
    alone = [reader.decode(bodies[member], max_instances=4).rows for member in many.members]
    assert many.rows.n == 5
    assert many.rows.lengths == [length for one in alone for length in one.lengths or ()] == [(n,) for n in range(5)]
    for index, column in enumerate(many.rows.columns):
        assert [np.array(row).tolist() for row in column] == [
            np.array(row).tolist() for one in alone for row in one.columns[index]
        ]
    scalars = codec()
    many = together(scalars, [b'{"instances": [1]}', b'{"instances": [2, 3]}'], max_instances=2)
    assert many is not None
    assert many.rows.columns[0].tolist() == [1, 2, 3]  # type: ignore[union-attr]
    assert scalars.decode_many([b"", b"1"], max_instances=2).alone == [0, 1]


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
    many = together(reader, bodies, max_instances=4)
    if many is None:
        return
    first = 0
    for one, count in zip(bodies, many.counts, strict=True):
        try:
            alone = reader.decode(one, max_instances=4).rows
        except ProtocolError as error:
            raise AssertionError(f"read together, refused alone: {one!r}") from error
        assert alone.n == count
        assert (many.rows.columns[0][first : first + count] == alone.columns[0]).all()
        first += count


def signature(**shapes: tuple[str, tuple[int, ...]]) -> ModelSignature:
    outputs = tuple(TensorSignature(name=name, dtype=dtype, shape=shape) for name, (dtype, shape) in shapes.items())
    return ModelSignature(inputs=(), outputs=outputs)


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,), (2, 0)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_answers_written_together_are_those_that_are_written_alone(shape: tuple[int, ...], dtype: str) -> None:
    output = np.random.default_rng(1).integers(0, 2, (8, *shape)).astype(dtype)
    texts = row_texts([output], ["y"], 6)
    if texts is None:
        assert shape == (0,) or shape == (2, 0)
        return
    form = PredictCodec(signature(y=(dtype, shape)))
    for start, stop in [(0, 1), (5, 6), (1, 4)]:
        assert texts.answer(start, stop, None) == form.one([output[start:stop]], None)


NATIVE = [*("bool", "uint8", "int16", "int32", "uint64", "int64"), "float32", "float64"]


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=3),
        st.tuples(st.sampled_from(NATIVE), st.sampled_from([(), (1,), (3,), (2, 1)])),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 2**32 - 1),
)
def test_answers_of_several_outputs_written_together_are_those_that_are_written_alone(
    outputs: dict[str, tuple[str, tuple[int, ...]]], seed: int
) -> None:
    numbers = np.random.default_rng(seed)
    columns = [(1e4 * numbers.standard_normal((5, *shape))).astype(dtype) for dtype, shape in outputs.values()]
    form = PredictCodec(signature(**outputs))
    texts = form.texts(columns, 4)
    assert texts is not None
    for start, stop in [(0, 1), (3, 4), (1, 3), (0, 4)]:
        assert texts.answer(start, stop, None) == form.one([column[start:stop] for column in columns], None)


def test_what_the_writer_has_no_form_for_is_left_to_each_answer() -> None:
    plain = np.float32([[1.0]])
    assert row_texts([plain, plain], ["a", "b"], 1) is not None
    for odd in (np.float32([[1.0, math.nan]]), np.float16([[1.0]]), [plain[0]], np.array([[b"x"]], object)):
        assert row_texts([odd], ["y"], 1) is None
        assert row_texts([plain, odd], ["a", "b"], 1) is None
    # Padding rows are not looked at.
    assert row_texts([np.float32([[1.0], [math.nan]])], ["y"], 1) is not None
