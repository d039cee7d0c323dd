"""A specification's probe examples, from JSON to arrays of the inputs' own types."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from server.build.errors import SourceRefused

__all__ = ["typed_examples"]

#: Kinds of NumPy dtypes that a number's own kind takes without losing what was written.
_TAKES = {"b": "b", "i": "iu", "u": "iu", "f": "iuf", "c": "iufc"}


def typed_examples(
    examples: Sequence[Mapping[str, Any]], inputs: Mapping[str, tf.TensorSpec]
) -> list[dict[str, np.ndarray]]:
    """Return ``examples`` as arrays; byte strings come as ``{"b64": ...}``, text stands for its UTF-8.

    What is no input is left as it is: the vectorizer names it.
    Errors: SourceRefused naming the example and the input.
    """
    return [
        {
            name: _typed(value, inputs[name].dtype, where=f"input {name!r} of example {index}")
            if name in inputs
            else value
            for name, value in example.items()
        }
        for index, example in enumerate(examples)
    ]


def _typed(value: Any, dtype: tf.DType, *, where: str) -> np.ndarray:
    try:
        return np.array(_bytes(value), object) if dtype == tf.string else _numbers(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise SourceRefused(f"{where}: expected {dtype.name}: {error}") from error


def _numbers(value: Any, dtype: tf.DType) -> np.ndarray:
    wanted = np.dtype(dtype.as_numpy_dtype)
    found = np.asarray(value)
    # bfloat16 and its like are of no kind that NumPy knows.
    if found.size and found.dtype != wanted and found.dtype.kind not in _TAKES.get(wanted.kind, "iuf"):
        raise TypeError(f"got {_shown(value)}")
    return np.array(value, wanted)  # from Python's integers: raises where one is out of range


def _bytes(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (np.ndarray, np.generic)):
        return _bytes(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_bytes(entry) for entry in value]
    if isinstance(value, Mapping) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        return base64.b64decode(value["b64"], validate=True)
    raise TypeError(f"got {_shown(value)}")


def _shown(value: Any, *, limit: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "..."
