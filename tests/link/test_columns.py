"""Columns between processes: every dtype, shape and cut comes back as it was, or the message is called garbled."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from server.link.columns import ColumnCodec
from server.link.errors import LinkGarbled
from server.link.frames import LARGE_BYTES, FrameReader, FrameWriter
from server.protocol import Column
from server.protocol.dtypes import numpy_dtype
from server.signature import TensorSignature

DTYPES = ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "bfloat16", "float32", "float64", "string"]


def of_dtype(draw: st.DrawFn, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if dtype == "string":
        size = int(np.prod(shape))
        values = np.empty(size, object)
        values[:] = draw(st.lists(st.binary(max_size=5), min_size=size, max_size=size))
        return values.reshape(shape)
    n_bytes = int(np.prod(shape)) * numpy_dtype(dtype).itemsize
    # Any bits: NaNs with payloads too. A bool has two values only.
    bits = draw(hnp.arrays(np.uint8, n_bytes, elements=st.integers(0, 1 if dtype == "bool" else 255)))
    return bits.view(numpy_dtype(dtype)).reshape(shape)


@st.composite
def columns(draw: st.DrawFn) -> tuple[TensorSignature, list[int], list[Column]]:
    dtype = draw(st.sampled_from(DTYPES))
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    fixed = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    if draw(st.booleans()):
        parts: list[Column] = [of_dtype(draw, dtype, (n, *fixed)) for n in counts]
        return TensorSignature(name="x", dtype=dtype, shape=fixed), counts, parts
    sizes = st.integers(0, 4)
    varying = [[of_dtype(draw, dtype, (draw(sizes), *fixed)) for _ in range(n)] for n in counts]
    return TensorSignature(name="x", dtype=dtype, shape=("n", *fixed)), counts, list(varying)


def sent(codecs: list[ColumnCodec], columns: list[list[Column]], counts: list[int]) -> list[list[Column]]:
    writer = FrameWriter()
    for codec, parts in zip(codecs, columns, strict=True):
        writer.add(b"")
        codec.write(writer, parts)
    reader = FrameReader([bytes(frame) for frame in writer.message(b"header")])
    assert reader.header == b"header"
    received = [codec.read(reader, sum(counts)) for codec in codecs]
    reader.close()
    ranges = list(pairwise(accumulate(counts, initial=0)))
    return [[column[start:stop] for start, stop in ranges] for column in received]


def bits(value: np.ndarray[Any, Any]) -> object:
    return value.tolist() if value.dtype == object else value.tobytes()


@settings(max_examples=150, deadline=None)
@given(columns())
def test_a_column_comes_back_bit_for_bit_and_request_by_request(
    drawn: tuple[TensorSignature, list[int], list[Column]],
) -> None:
    tensor, counts, parts = drawn
    codec = ColumnCodec(tensor)
    assert all(codec.misfit(part, n) is None for part, n in zip(parts, counts, strict=True))
    # Twice in one message: nothing of the first may be left for the second.
    for received in sent([codec, codec], [parts, parts], counts):
        assert len(received) == len(counts)
        for got, expected in zip(received, parts, strict=True):
            assert len(got) == len(expected)
            for got_row, expected_row in zip(got, expected, strict=True):
                assert np.shape(got_row) == np.shape(expected_row)
                assert np.asarray(got_row).dtype == np.asarray(expected_row).dtype
                assert bits(np.asarray(got_row)) == bits(np.asarray(expected_row))


def test_a_large_array_is_sent_and_received_where_it_lies() -> None:
    array = np.arange(LARGE_BYTES, dtype=np.float32).reshape(1, -1)
    codec = ColumnCodec(TensorSignature(name="x", dtype="float32", shape=(LARGE_BYTES,)))
    writer = FrameWriter()
    codec.write(writer, [array])
    frames = writer.message(b"header")
    assert np.shares_memory(np.frombuffer(frames[1], np.float32), array)
    received = codec.read(FrameReader(frames), 1)
    assert isinstance(received, np.ndarray)
    assert np.shares_memory(received, array)


def test_columns_that_are_not_contiguous_are_sent_as_what_they_show() -> None:
    codec = ColumnCodec(TensorSignature(name="x", dtype="int32", shape=(2,)))
    every_other = np.arange(12, dtype=np.int32).reshape(6, 2)[::2]
    ((received,),) = sent([codec], [[every_other]], [3])
    assert received.tolist() == [[0, 1], [4, 5], [8, 9]]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (np.zeros((2, 3), np.float64), "float64"),
        (np.zeros((2, 4), np.float32), "shape (2, 4)"),
        (np.zeros((3, 3), np.float32), "shape (3, 3)"),
        ([np.zeros(3, np.float32)] * 2, "a list of 2 arrays"),
    ],
)
def test_what_the_reader_would_misread_is_said_before_it_is_sent(column: Column, says: str) -> None:
    codec = ColumnCodec(TensorSignature(name="x", dtype="float32", shape=(3,)))
    misfit = codec.misfit(column, 2)
    assert misfit is not None
    assert says in misfit


def test_rows_of_another_rank_are_said_before_they_are_sent() -> None:
    codec = ColumnCodec(TensorSignature(name="x", dtype="float32", shape=("n",)))
    assert codec.misfit([np.zeros(2, np.float32)], 1) is None
    assert codec.misfit([np.zeros((2, 2), np.float32)], 1) is not None
    assert codec.misfit([np.zeros(2, np.float32)], 2) is not None


@pytest.mark.parametrize(
    "change", ["short", "long", "frame missing", "frame more", "nothing", "header missing", "header cut short"]
)
def test_a_message_of_another_length_is_garbled(change: str) -> None:
    codec = ColumnCodec(TensorSignature(name="x", dtype="float32", shape=(3,)))
    large = ColumnCodec(TensorSignature(name="y", dtype="uint8", shape=(LARGE_BYTES,)))
    writer = FrameWriter()
    codec.write(writer, [np.zeros((1, 3), np.float32)])
    large.write(writer, [np.zeros((1, LARGE_BYTES), np.uint8)])
    small, big = writer.message(b"header")
    frames = {
        "short": [bytes(small)[:-8], big],
        "long": [bytes(small) + bytes(8), big],
        "frame missing": [small],
        "frame more": [small, big, big],
        "nothing": [],
        "header missing": [b"", big],
        "header cut short": [bytes(small)[:9], big],
    }[change]

    def read() -> None:
        reader = FrameReader(frames)
        codec.read(reader, 1)
        large.read(reader, 1)
        reader.close()

    with pytest.raises(LinkGarbled):
        read()
