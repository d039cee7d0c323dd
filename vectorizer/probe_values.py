"""The values that probes are made of: ordinary ones, drawn, and those at which code breaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["FILLS", "drawn", "extremes", "filled", "garbage", "has_denormals", "sprinkled"]

#: Constant examples that most functions answer.
FILLS = (0, 1, -1, 1000)
#: Integers are often indices; small ones are in range more often than not.
_INTEGER_LIMIT = 8
_WORDS = (b"", b"a", b"7", b"3.5", b"row wise", "h\u00f6ren".encode())
#: Not UTF-8, a NUL inside and at the end, longer than a small string is stored inline.
_ODD_WORDS = (b"\xff\xfe", b"a\0b\0", b"long " * 40)
#: By type: huge, the smallest normal number, the smallest number. The huge ones are powers of two, with room to
#: square them and to sum: what overflows in one order of summing and not in another can't be checked.
_LIMITS = {
    "bfloat16": (2.0**60, 2.0**-126, 2.0**-133),
    "float16": (2.0**14, 2.0**-14, 2.0**-24),
    "float32": (2.0**60, 2.0**-126, 2.0**-149),
    "float64": (2.0**500, 2.0**-1022, 2.0**-1074),
}
#: How many elements of a sprinkled example are extreme, about.
_SHARE = 0.25


def extremes(dtype: tf.DType) -> dict[str, Any]:
    """Return values at which code breaks, by what to call them."""
    if dtype == tf.string:
        return dict(zip(("no UTF-8", "a NUL", "long strings"), _ODD_WORDS, strict=True))
    if dtype == tf.bool:
        return {}
    if dtype.is_integer:
        info = np.iinfo(dtype.as_numpy_dtype)
        return {"the largest integer": info.max, "the smallest integer": info.min}
    huge, tiny, smallest = _LIMITS[dtype.real_dtype.name]
    return {
        "-0": -0.0,
        "huge": huge,
        "huge and negative": -huge,
        "tiny": tiny,
        "denormal": smallest,
        "not a number": np.nan,
        "infinity": np.inf,
        "minus infinity": -np.inf,
    }


def filled(spec: tf.TensorSpec, shape: tuple[int, ...], fill: int) -> np.ndarray:
    """Return a constant array of one of ``FILLS``, as the type can hold it."""
    if spec.dtype == tf.string:
        return np.full(shape, _WORDS[abs(fill) % len(_WORDS)], dtype=object)
    if spec.dtype == tf.bool:
        return np.full(shape, bool(fill))
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        fill = max(info.min, min(info.max, fill))
    return np.full(shape, fill, dtype=dtype)


def drawn(spec: tf.TensorSpec, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return ordinary values: normal floats, small integers, words and numbers as text."""
    if spec.dtype == tf.string:
        return np.array([_WORDS[i] for i in rng.integers(0, len(_WORDS), int(np.prod(shape)))], object).reshape(shape)
    if spec.dtype == tf.bool:
        return rng.integers(0, 2, shape).astype(bool)
    if spec.dtype.is_integer:
        return rng.integers(0, _INTEGER_LIMIT, shape).astype(spec.dtype.as_numpy_dtype)
    if spec.dtype.is_complex:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(spec.dtype.as_numpy_dtype)
    return rng.normal(size=shape).astype(spec.dtype.as_numpy_dtype)


def sprinkled(spec: tf.TensorSpec, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return ordinary values with extreme ones among them."""
    values = drawn(spec, shape, rng)
    known = list(extremes(spec.dtype).values())
    if not known:
        return values
    flat = values.reshape(-1)
    for index in np.flatnonzero(rng.random(flat.size) < _SHARE):
        flat[index] = known[int(rng.integers(len(known)))]
    return flat.reshape(shape)


def has_denormals(value: np.ndarray) -> bool:
    """Return True if a float is nearer to zero than the smallest normal number of its type, and not zero."""
    limits = _LIMITS.get(value.dtype.name)
    if limits is None:
        return False
    magnitude = np.abs(value)
    return bool(((magnitude > 0) & (magnitude < value.dtype.type(limits[1]))).any())


def garbage(value: np.ndarray) -> Iterator[Any]:
    """Yield endless values that could stand in the place of ``value``'s padding: its own, or others of its kind."""
    position = 0
    own = value.reshape(-1)
    while True:
        if own.size and value.dtype.kind in "iuO":
            yield own[position % own.size]  # in range, if they are indices
        elif value.dtype.kind == "O":
            yield b"padding"
        else:
            yield value.dtype.type(7)
        position += 1
