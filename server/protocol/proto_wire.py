"""Protocol buffers' bytes, field by field: what a message of tensors needs, and nothing copied that is large.

A generated class copies a tensor's bytes twice before anybody sees them, and makes a Python object of each number in a
repeated field. Here a message is a list of fields, a field's bytes are a view of the message, and numbers go through
NumPy. Measured on a ModelInfer of 64 floats: see docs/grpc.md.

Source: the encoding guide of protocol buffers. Groups, which proto3 does not have, are refused.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from server.protocol.dtypes import numpy_dtype
from server.protocol.errors import MalformedRequest, WrongDtype
from server.protocol.rows import Array

__all__ = [
    "FIXED32",
    "FIXED64",
    "LEN",
    "VARINT",
    "Fields",
    "Piece",
    "binary",
    "fields",
    "head",
    "joined",
    "read_numbers",
    "read_varints",
    "signed",
    "text",
    "varint",
    "within",
    "write_varints",
]

#: Wire types.
VARINT, FIXED64, LEN, FIXED32 = 0, 1, 2, 5

#: Tags (field number and wire type) with values: integers of VARINT fields, views of the others.
Fields = list[tuple[int, int | memoryview]]

#: A part of a message that is written.
Piece = bytes | memoryview

_MAX_VARINT_BYTES = 10
_SHIFTS = np.arange(_MAX_VARINT_BYTES, dtype=np.uint64) * np.uint64(7)
#: Up to here copying is cheaper than a view.
_SMALL_BYTES = 1_024
_TRUNCATED = "the message ends in the middle of a field"


def fields(message: memoryview, *, at_most: int | None = None) -> Fields:
    """Return a message's fields in their order; more than ``at_most`` are refused before they are listed.

    Errors: MalformedRequest.
    """
    found: Fields = []
    at, end = 0, len(message)
    try:
        while at < end:
            if len(found) == at_most:
                raise MalformedRequest(f"the message has more than {at_most} fields")
            tag = message[at]
            at += 1
            if tag > 127:
                tag, at = _varint(message, at - 1)
            if not 8 <= tag < 1 << 32:
                raise MalformedRequest(f"the message has a field of number {tag >> 3}, which none can have")
            kind = tag & 7
            if kind == LEN:
                size = message[at]
                at += 1
                if size > 127:
                    size, at = _varint(message, at - 1)
            elif kind == VARINT:
                value, at = _varint(message, at)
                found.append((tag, value))
                continue
            elif kind in (FIXED32, FIXED64):
                size = 4 if kind == FIXED32 else 8
            else:
                raise MalformedRequest(f"the message has a field of wire type {kind}, which proto3 does not have")
            start = at
            at += size
            if at > end:
                raise MalformedRequest(_TRUNCATED)
            found.append((tag, message[start:at]))
    except IndexError:
        raise MalformedRequest(_TRUNCATED) from None
    return found


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the integer that begins there, and where the next thing begins. IndexError: the message ends before."""
    value = message[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    for shift in range(7, 7 * _MAX_VARINT_BYTES, 7):
        octet = message[at]
        at += 1
        value |= (octet & 127) << shift
        if octet < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise MalformedRequest("the message has an integer of more than ten bytes")


def signed(value: int) -> int:
    """Return a VARINT field's value as int64 or int32."""
    return value - (1 << 64) if value >> 63 else value


def text(value: int | memoryview, what: str) -> str:
    """Read a string. Errors: MalformedRequest, which calls it ``what``."""
    try:
        return str(value, "utf-8")  # type: ignore[arg-type]
    except (TypeError, UnicodeDecodeError):
        raise MalformedRequest(f"{what} is not UTF-8 text") from None


def read_varints(packed: memoryview | bytes) -> Array:
    """Read packed integers. Shapes: uint64 [n]; negative ones are two's complement. Errors: MalformedRequest."""
    octets = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(octets < 128)
    if ends.size == octets.size:
        return octets.astype(np.uint64)
    if not ends.size or ends[-1] != octets.size - 1:
        raise MalformedRequest("packed integers end in the middle of one")
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    sizes = ends - starts + 1
    longest = int(sizes.max())
    if longest > _MAX_VARINT_BYTES:
        raise MalformedRequest("the message has an integer of more than ten bytes")
    values = np.zeros(ends.size, np.uint64)
    for place in range(longest):
        has = sizes > place
        values[has] |= (octets[starts[has] + place] & 127).astype(np.uint64) << _SHIFTS[place]
    return values


def read_numbers(parts: Iterable[tuple[int, int | memoryview]], dtype: np.dtype[np.generic]) -> Array:
    """Read a repeated field of numbers, packed or not, from its fields.

    Shapes: [n] of ``dtype``; integers that don't fit are cut to it, as protocol buffers do; float16 and bfloat16 are
        integers of 16 bits. A view where one packed field holds floats. Errors: MalformedRequest.
    """
    is_fixed = dtype.kind == "f" and dtype.itemsize >= 4
    element = FIXED64 if dtype.itemsize == 8 else FIXED32
    arrays: list[Array] = []
    single: list[int] = []
    for tag, value in parts:
        kind = tag & 7
        if kind == VARINT and isinstance(value, int) and not is_fixed:
            single.append(value)
            continue
        if single:
            arrays.append(np.array(single, np.uint64))
            single = []
        if isinstance(value, int) or kind not in (LEN, element if is_fixed else LEN):
            raise MalformedRequest(f"a field of {dtype} numbers has wire type {kind}")
        if not is_fixed:
            arrays.append(read_varints(value))
        elif len(value) % dtype.itemsize:
            raise MalformedRequest(f"{len(value)} bytes hold no whole number of {dtype}")
        else:
            arrays.append(np.frombuffer(value, dtype))
    if single:
        arrays.append(np.array(single, np.uint64))
    if len(arrays) == 1:
        values = arrays[0]
    else:
        values = np.concatenate(arrays) if arrays else np.empty(0, dtype if is_fixed else np.uint64)
    if is_fixed:
        return values
    converted: Array = values != 0 if dtype.kind == "b" else values.astype(dtype if dtype.kind in "iu" else np.uint16)
    return converted if dtype.kind in "biu" else converted.view(dtype)


def within(values: Array, dtype: str, name: str) -> Array:
    """Return the integers of a wider field as ``dtype``. Errors: WrongDtype."""
    wanted = numpy_dtype(dtype)
    if values.dtype == wanted:
        return values
    limits = np.iinfo(wanted)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        raise WrongDtype(f"input {name!r}: a value is out of the range of {dtype}, {limits.min} to {limits.max}")
    return values.astype(wanted)


def write_varints(values: Array) -> bytes:
    """Write integers or booleans packed; negative ones as two's complement of 64 bits. Shapes: any."""
    values = values.reshape(-1)
    if values.dtype.kind == "b" or not values.size:
        return values.tobytes()
    unsigned: Array = values.astype(np.int64).view(np.uint64) if values.dtype.kind == "i" else values.astype(np.uint64)
    if unsigned.max() < 128:
        return unsigned.astype(np.uint8).tobytes()
    septets: Array = unsigned[:, None] >> _SHIFTS
    sizes = np.maximum(np.count_nonzero(septets, axis=1), 1)[:, None]
    places: Array = np.arange(_MAX_VARINT_BYTES)
    more = np.where(places < sizes - 1, np.uint8(128), np.uint8(0))
    octets: Array = (septets & np.uint64(127)).astype(np.uint8) | more
    written: bytes = octets[places < sizes].tobytes()
    return written


def varint(value: int) -> bytes:
    """Write one integer, not negative."""
    if value < 128:
        return bytes((value,))
    octets = bytearray()
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def head(number: int, n_bytes: int) -> bytes:
    """Return what stands before the ``n_bytes`` bytes of field ``number``."""
    return varint(number << 3 | LEN) + varint(n_bytes)


def joined(number: int, pieces: Iterable[Piece]) -> bytes:
    """Return a field whose bytes are the pieces."""
    payload = b"".join(pieces)
    return head(number, len(payload)) + payload


def binary(values: Array) -> Piece:
    """Return numbers as bytes, little-endian and row-major, without copying many that lie together."""
    if values.nbytes <= _SMALL_BYTES:
        return values.tobytes()
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
