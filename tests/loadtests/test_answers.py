"""Where an answer ends, however its bytes arrive."""

from __future__ import annotations

import pytest

from loadtests.answers import AnswerError, AnswerReader

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\nhello world"
ANSWERS = {
    "title case": (WHOLE, (200, b"hello world")),
    "lower case": (WHOLE.replace(b"Content-Length", b"content-length"), (200, b"hello world")),
    "capitals": (WHOLE.replace(b"Content-Length", b"CONTENT-LENGTH"), (200, b"hello world")),
    "no space": (WHOLE.replace(b"Length: 11", b"Length:11"), (200, b"hello world")),
    "another status": (WHOLE.replace(b"200 OK", b"429 Too Many Requests"), (429, b"hello world")),
    "empty body": (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", (503, b"")),
    "no body": (b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n", (204, b"")),
    "old protocol": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n",
        (200, b"hello world"),
    ),
    "a length in another header": (
        b"HTTP/1.1 200 OK\r\nX-Content-Length: 3\r\nContent-Length: 5\r\n\r\nhello",
        (200, b"hello"),
    ),
    "a head in the body": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n\r\n\r\nContent-Length: 1\r\n\r\nab",
        (200, b"\r\n\r\nContent-Length: 1\r\n\r\nab"),
    ),
}


@pytest.mark.parametrize(("data", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_arrives_whole_is_complete(data: bytes, expected: tuple[int, bytes]) -> None:
    assert AnswerReader().feed(data) == expected


@pytest.mark.parametrize(("data", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_arrives_in_pieces_is_complete_with_the_last(data: bytes, expected: tuple[int, bytes]) -> None:
    for size in range(1, len(data)):
        reader = AnswerReader()
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        results = [reader.feed(piece) for piece in pieces]
        assert results == [None] * (len(pieces) - 1) + [expected], f"in pieces of {size} bytes"


def test_one_reader_takes_answers_of_all_kinds_in_turn() -> None:
    reader = AnswerReader()
    for _ in range(2):
        for data, expected in ANSWERS.values():
            assert reader.feed(data) == expected
            assert reader.feed(data[:9]) is None
            assert reader.feed(data[9:]) == expected


@pytest.mark.parametrize("data", [b"SSH-2.0-OpenSSH\r\n\r\n", b"\x00\x01\x02\x03", b"HTTP/1.1 abc\r\n\r\n"])
def test_bytes_that_are_no_answer_are_an_error(data: bytes) -> None:
    with pytest.raises(AnswerError, match="no HTTP answer"):
        AnswerReader().feed(data)


def test_bytes_past_the_length_that_was_said_are_an_error() -> None:
    reader = AnswerReader()
    assert reader.feed(WHOLE[:-5]) is None
    with pytest.raises(AnswerError, match="1 bytes follow"):
        reader.feed(WHOLE[-5:] + b"x")
