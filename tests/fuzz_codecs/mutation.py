"""Inputs that are nearly right: valid ones of a corpus, broken in a few places.

Random bytes are refused at their first one, and what is made by a grammar is right. Most faults of parsers lie where
something that is nearly right contradicts itself: a length, a bracket, a number, a part of another request. Which edits
are made is drawn from a seed, so that every input can be made again from its target, seed and number.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

__all__ = ["mutated"]

#: What means something to one of the parsers.
_TOKENS = (
    *(b"[", b"]", b"[]", b"{", b"}", b"{}", b'"', b",", b":", b"null", b"true", b"false", b"NaN", b"Infinity"),
    *(b"-Infinity", b"-", b"0", b"-0.0", b"1.0", b"1e400", b"1e-400", b"0.1", b"255", b"256", b"-1", b"2147483648"),
    *(b"9223372036854775808", b"18446744073709551616", b"1" * 400, b"\\u0000", b"\\ud800", b"\\", b"\xff", b"\0"),
    *(b'"instances":', b'"inputs":', b'"data":', b'"id":', b'"shape":', b'"b64":', b'"parameters":', b'"name":'),
    *(b'"datatype":', b'"binary_data_size":', b"\r\n", b"\r\n\r\n", b"\n", b" ", b"\t", b": ", b"0x10", b"+1", b"1_0"),
    *(b"chunked", b"gzip", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n"),
    *(b"POST ", b"GET ", b"HTTP/1.1", b"HTTP/1.0", b"0\r\n\r\n", b"Connection: close\r\n", b"/v2/health/live"),
    *(b"\x80", b"\x7f", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b", b"\x0c"),
    *(b"\x0a", b"\x12", b"\x1a", b"\x2a", b"\x3a", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f", b"\xfe\xff\xff\xff"),
)
_NUMBER = re.compile(rb"[0-9]+")
_NUMBERS = (b"0", b"1", b"2", b"3", b"7", b"12", b"16", b"63", b"64", b"65", b"100", b"4096", b"1000000", b"4294967295")
_MAX_BYTES = 1 << 14


def mutated(random_: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return one of a corpus with one to six edits; seldom as it is, so that what is remembered of it is used too."""
    data = random_.choice(corpus)
    for _ in range(random_.choice((0, 1, 1, 1, 1, 2, 2, 3, 4, 6))):
        data = random_.choice(_EDITS)(random_, data, corpus)[:_MAX_BYTES]
    return data


_Edit = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def _span(random_: random.Random, data: bytes) -> tuple[int, int]:
    """A part of it, more often a short one."""
    start = random_.randrange(len(data) + 1)
    longest = len(data) - start
    return start, start + min(longest, random_.choice((1, 1, 2, 4, 8, 16, longest)))


def _set_byte(random_: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = random_.randrange(len(data) + 1)
    return data[:at] + bytes((random_.randrange(256),)) + data[at + 1 :]


def _flip_bit(random_: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return b"\x01"
    at = random_.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << random_.randrange(8),)) + data[at + 1 :]


def _cut(random_: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, stop = _span(random_, data)
    return data[:start] + data[stop:]


def _repeat(random_: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, stop = _span(random_, data)
    return data[:stop] + data[start:stop] * random_.choice((1, 1, 2, 50)) + data[stop:]


def _move(random_: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, stop = _span(random_, data)
    rest = data[:start] + data[stop:]
    at = random_.randrange(len(rest) + 1)
    return rest[:at] + data[start:stop] + rest[at:]


def _insert_token(random_: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = random_.randrange(len(data) + 1)
    return data[:at] + random_.choice(_TOKENS) + data[at:]


def _put_token(random_: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, stop = _span(random_, data)
    return data[:start] + random_.choice(_TOKENS) + data[stop:]


def _other_number(random_: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Put another number where digits are: lengths, sizes, values."""
    found = [match.span() for match in _NUMBER.finditer(data)]
    if not found:
        return data
    start, stop = random_.choice(found)
    near = b"%d" % max(0, int(data[start:stop][:18]) + random_.choice((-1, 1, 2)))
    return data[:start] + random_.choice((near, near, *_NUMBERS)) + data[stop:]


def _near_byte(random_: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Change a byte a little: lengths and tags of binary forms."""
    if not data:
        return data
    at = random_.randrange(len(data))
    return data[:at] + bytes(((data[at] + random_.choice((-8, -1, 1, 8))) % 256,)) + data[at + 1 :]


def _splice(random_: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = random_.choice(corpus)
    start, stop = _span(random_, other)
    at, until = _span(random_, data)
    return data[:at] + other[start:stop] + data[until:]


def _truncate(random_: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: random_.randrange(len(data) + 1)]


_EDITS: tuple[_Edit, ...] = (
    *(_set_byte, _flip_bit, _cut, _repeat, _move, _insert_token, _put_token, _put_token),
    *(_other_number, _other_number, _near_byte, _near_byte, _splice, _truncate),
)
