"""Protocol buffers by hand: the same bytes and the same values as the library's."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from server.protocol import MalformedRequest
from server.protocol.messages import message_class
from server.protocol.proto_wire import (
    FIXED32,
    LEN,
    VARINT,
    fields,
    head,
    joined,
    read_numbers,
    read_varints,
    varint,
    write_varints,
)

INT64 = st.integers(-(2**63), 2**63 - 1)


def contents(**values: Any) -> Any:
    return message_class("inference.InferTensorContents")(**values)


def listed(message: bytes) -> list[tuple[int, int, Any]]:
    return [
        (tag >> 3, tag & 7, value if isinstance(value, int) else bytes(value))
        for tag, value in fields(memoryview(message))
    ]


@given(st.lists(INT64))
def test_packed_integers_are_written_and_read_as_the_library_does(values: list[int]) -> None:
    array = np.array(values, np.int64)
    packed = write_varints(array)
    expected = contents(int64_contents=values).SerializeToString()
    assert (head(3, len(packed)) + packed if values else b"") == expected
    assert read_varints(packed).view(np.int64).tolist() == values


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_unsigned_ones_too(values: list[int]) -> None:
    packed = write_varints(np.array(values, np.uint64))
    assert contents(uint64_contents=values).SerializeToString() == (head(5, len(packed)) + packed if values else b"")
    assert read_varints(packed).tolist() == values


@given(st.integers(0, 2**64 - 1))
def test_one_integer_is_written_as_many_are(value: int) -> None:
    assert varint(value) == write_varints(np.array([value], np.uint64))


def test_fields_are_listed_with_their_wire_types() -> None:
    request = message_class("inference.RepositoryIndexRequest")(repository_name="r" * 300, ready=True)
    assert listed(request.SerializeToString()) == [(1, LEN, b"r" * 300), (2, VARINT, 1)]
    assert listed(joined(2000, [b"ab", memoryview(b"c")])) == [(2000, LEN, b"abc")]
    assert listed(b"\x0d\x01\x02\x03\x04") == [(1, FIXED32, b"\x01\x02\x03\x04")]
    assert listed(b"") == []


@pytest.mark.parametrize(
    "message",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x08",
        b"\x08\x80",
        b"\x0d\x00",
        b"\x0b",
        b"\x0f",
        b"\x80",
        b"\x08" + b"\x80" * 11,
        b"\x0a\xff",
    ],
)
def test_bytes_that_are_no_message_are_said_to_be_none(message: bytes) -> None:
    with pytest.raises(MalformedRequest):
        fields(memoryview(message))


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"\x02\x00", "number 0"),
        (b"\x00\x01", "number 0"),
        (b"\xf8\xff\xff\xff\x7f\x01", "none can have"),
    ],
)
def test_a_field_of_a_number_that_none_can_have_was_read(message: bytes, says: str) -> None:
    with pytest.raises(DecodeError):
        contents().FromString(message)
    with pytest.raises(MalformedRequest, match=says):
        fields(memoryview(message))


def test_a_message_of_countless_fields_is_not_listed_to_its_end() -> None:
    with pytest.raises(MalformedRequest, match="more than 10 fields"):
        fields(memoryview(b"\x08\x00" * 11), at_most=10)


@given(st.binary(max_size=48))
@example(bytes(4))
def test_no_other_error_leaves_whatever_the_bytes(message: bytes) -> None:
    try:
        found = fields(memoryview(message))
    except MalformedRequest as error:
        # Groups apart, which the library skips, and fields of number 0, of which it takes some.
        if not any(octet & 7 in (3, 4) for octet in message) and "field of number 0" not in str(error):
            with pytest.raises(DecodeError):
                message_class("inference.ServerLiveRequest").FromString(message)
        return
    assert all((tag & 7 == VARINT) == isinstance(value, int) for tag, value in found)


@pytest.mark.parametrize("split", [0, 1, 3])
def test_numbers_are_read_packed_and_one_by_one(split: int) -> None:
    values = [1.5, -2.0, 3.25]
    packed = struct.pack(f"<{split}f", *values[:split])
    message = (joined(6, [packed]) if split else b"") + b"".join(b"\x35" + struct.pack("<f", v) for v in values[split:])
    assert contents().FromString(message).fp32_contents == values
    assert read_numbers(fields(memoryview(message)), np.dtype(np.float32)).tolist() == values


def test_integers_are_read_packed_and_one_by_one() -> None:
    message = b"\x10\x05" + joined(2, [b"\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"]) + b"\x10\x09"
    assert contents().FromString(message).int_contents == [5, 7, -1, 9]
    assert read_numbers(fields(memoryview(message)), np.dtype(np.int32)).tolist() == [5, 7, -1, 9]


def test_a_packed_field_of_floats_is_a_view() -> None:
    message = contents(fp32_contents=range(1000)).SerializeToString()
    values = read_numbers(fields(memoryview(message)), np.dtype(np.float32))
    assert np.may_share_memory(values, np.frombuffer(message, np.uint8))


@pytest.mark.parametrize("message", [b"\x32\x03abc", b"\x30\x01", b"\x31" + bytes(8)])
def test_fields_of_another_wire_type_are_no_numbers(message: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_numbers(fields(memoryview(message)), np.dtype(np.float32))
