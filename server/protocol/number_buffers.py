"""JSON numbers from the parser's memory into an array, without a Python object for each.

simdjson flattens nested arrays into one buffer of 64-bit numbers. Flattening forgets the structure: whoever uses this
checks it beside. simdjson itself refuses values that are not numbers of the kind that is asked for: 1.0 is no integer
to it, true is no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import simdjson

from server.protocol.dtypes import float_limit, kind_of, numpy_dtype
from server.protocol.rows import Array

__all__ = ["SHARED_PARSER_MAX_BYTES", "NumberBuffer", "has_shape", "narrow_within", "parser_for"]

#: A parser keeps its memory, about ten bytes for each of its longest body: a longer one gets a parser of its own, and
#: may be decoded in any thread.
SHARED_PARSER_MAX_BYTES = 2**18

_PARSER = simdjson.Parser()


def parser_for(n_bytes: int) -> Any:
    """Return a parser for a body. No proxy of what it parses may outlive the call that asked for it."""
    return _PARSER if n_bytes <= SHARED_PARSER_MAX_BYTES else simdjson.Parser()


class NumberBuffer:
    """Takes the numbers of a parsed array as values of one dtype: a floating-point one, or an integer."""

    def __init__(self, dtype: str) -> None:
        self._dtype = numpy_dtype(dtype)
        self._is_float = kind_of(dtype) == "float"
        wide = "float64" if self._is_float else "uint64" if dtype == "uint64" else "int64"
        self._wide, self._of_type = numpy_dtype(wide), {"f": "d"}.get(wide[0], wide[0])
        self._is_wide = self._dtype == self._wide
        #: The largest sum of squares that no single value out of range can be part of; float64 has nothing above it.
        self._limit = float_limit(dtype) ** 2 if self._is_float and not self._is_wide else None

    def take(self, array: Any) -> Array | None:
        """Return all numbers of a parsed array, flat; None if one may be out of range.

        Errors: ValueError and TypeError, if one is not of the kind.
        """
        wide: Array = np.frombuffer(array.as_buffer(of_type=self._of_type), self._wide)
        if self._is_wide:
            return wide
        if self._limit is not None:
            return narrow_within(wide, self._dtype, self._limit)
        narrow = wide.astype(self._dtype)
        return narrow if np.array_equal(narrow, wide) else None


def narrow_within(doubles: np.ndarray[Any, np.dtype[np.float64]], dtype: np.dtype[Any], limit: float) -> Array | None:
    """Narrow doubles whose sum of squares is at most ``limit``, so that none can overflow; else return None.

    One pass of BLAS costs less than any elementwise comparison: 0.6 us for 64 values, against 1.8 us.
    """
    return None if not np.vdot(doubles, doubles) <= limit else doubles.astype(dtype)


def has_shape(arrays: Any, shape: Sequence[int]) -> bool:
    """True if every element of ``arrays`` has the length ``shape[0]``, its elements ``shape[1]``, and so on."""
    if len(shape) == 1:
        return set(map(len, arrays)) == {shape[0]}
    inner = shape[1:]
    return all(len(array) == shape[0] and has_shape(array, inner) for array in arrays)
