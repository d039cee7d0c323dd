"""The declared inputs of a function, and the values that a caller gives for them."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.errors import DeclarationError

__all__ = ["check_inputs", "example_array"]

#: What an example may hold: everything that is plain data.
_DTYPES = frozenset(
    {
        tf.bfloat16,
        tf.bool,
        tf.complex64,
        tf.complex128,
        tf.float16,
        tf.float32,
        tf.float64,
        tf.int8,
        tf.int16,
        tf.int32,
        tf.int64,
        tf.string,
        tf.uint8,
        tf.uint16,
        tf.uint32,
        tf.uint64,
    }
)


def check_inputs(inputs: Any) -> None:
    """Errors: DeclarationError for what is no dict of names and typed shapes of one example."""
    if not isinstance(inputs, Mapping):
        raise DeclarationError(
            f"inputs: expected a dict of names and tf.TensorSpec of one example, got {type(inputs).__name__}"
        )
    if not inputs:
        raise DeclarationError("the function has no inputs: declare at least one as inputs={'x': tf.TensorSpec(...)}")
    for name, spec in inputs.items():
        # Inputs are passed by keyword, through TensorFlow's own methods too.
        if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name) or name == "self":
            raise DeclarationError(f"input {name!r}: its name must be a Python identifier, and not 'self'; rename it")
        if not isinstance(spec, tf.TensorSpec):
            raise DeclarationError(
                f"input {name!r}: expected a tf.TensorSpec of one example, got {type(spec).__name__}"
            )
        if spec.shape.rank is None:
            raise DeclarationError(
                f"input {name!r}: the number of dimensions is unknown; name them, None where they vary"
            )
        if spec.dtype not in _DTYPES:
            raise DeclarationError(
                f"input {name!r}: {spec.dtype.name} can't be sent; expected one of "
                f"{', '.join(sorted(dtype.name for dtype in _DTYPES))}"
            )


def example_array(value: Any, spec: tf.TensorSpec, *, where: str) -> np.ndarray:
    """Return a value of one input as an array of its dtype. ``where`` begins the message of an error.

    Shapes: the spec's; where it has None, any size.
    Errors: DeclarationError if the shape is another, or the dtype can't hold the value (1.5 or 300 in a uint8).
    """
    expected = f"{spec.dtype.name}{spec.shape.as_list()}"
    try:
        array = _string_array(value) if spec.dtype == tf.string else _number_array(value, spec.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise DeclarationError(f"{where}: expected {expected}: {error}") from error
    if not spec.shape.is_compatible_with(array.shape):
        raise DeclarationError(f"{where}: expected {expected}, got the shape {list(array.shape)}")
    return array


def _string_array(value: Any) -> np.ndarray:
    array = np.asarray(value, dtype=object)
    for element in array.flat:
        if not isinstance(element, (bytes, str)):
            raise TypeError(f"got {element!r} of type {type(element).__name__}")
    return array


def _number_array(value: Any, dtype: tf.DType) -> np.ndarray:
    raw = np.asarray(value)
    if raw.dtype == dtype.as_numpy_dtype:
        return raw
    takes = "b" if dtype == tf.bool else "biu" if dtype.is_integer else "biufc" if dtype.is_complex else "biuf"
    if raw.dtype.kind not in takes and raw.size:
        raise TypeError(f"got values of type {raw.dtype}")
    array = raw.astype(dtype.as_numpy_dtype)
    if dtype.is_integer and not np.array_equal(array, raw):
        raise ValueError(f"a value is out of range of {dtype.name}")
    return array
