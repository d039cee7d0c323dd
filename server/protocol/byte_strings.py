"""Strings in binary tensors of the Open Inference Protocol: each with its length before it, as four bytes."""

from __future__ import annotations

import struct

import numpy as np

from server.protocol.errors import WrongShape
from server.protocol.rows import Array

__all__ = ["read_byte_strings", "write_byte_strings"]

_LENGTH = struct.Struct("<I")


def read_byte_strings(binary: memoryview, n: int, what: str) -> Array:
    """Read ``n`` strings. Shapes: object [n] of ``bytes``. Errors: WrongShape, which calls the tensor ``what``."""
    if n * _LENGTH.size > len(binary):  # before room is made for them
        raise WrongShape(f"{what}: {len(binary)} bytes can't hold {n} strings, each with its length before it")
    values = np.empty(n, object)
    at, end = 0, len(binary)
    for index in range(n):
        if at + _LENGTH.size > end:
            break
        (size,) = _LENGTH.unpack_from(binary, at)
        at += _LENGTH.size + size
        if at > end:
            break
        values[index] = bytes(binary[at - size : at])
    else:
        if at == end:
            return values
        raise WrongShape(f"{what}: after its {n} strings {end - at} bytes are left")
    raise WrongShape(f"{what}: its bytes end in string {index} of {n}")


def write_byte_strings(values: Array) -> bytes:
    """Write strings. Shapes: object array of ``bytes``, any shape."""
    pieces: list[bytes] = []
    for value in values.reshape(-1).tolist():
        pieces += (_LENGTH.pack(len(value)), value)
    return b"".join(pieces)
