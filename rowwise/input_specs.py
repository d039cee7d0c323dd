"""The inputs of one example, however the caller writes them, in the form that the server reads.

The form of one input is ``{"dtype": "float32", "shape": [null, 32], "max": 64, ...}``: the shape has no batch
dimension and null where examples differ; ``max`` and the other details of a variable dimension are the
server's (see the manual, "Variable-length inputs") and pass through as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rowwise.errors import WrongInputs

__all__ = ["length_inputs", "merged", "normalized"]

InputForm = dict[str, Any]

_LENGTH_INPUT = "length_input"
#: What the function is told a length as, unless its own entry says otherwise.
_LENGTH_FORM: InputForm = {"dtype": "int32", "shape": []}


def normalized(inputs: Mapping[str, Any]) -> dict[str, InputForm]:
    """Return every input of the function in the server's form, length inputs included.

    A value is a ``tf.TensorSpec``; a dict with ``dtype`` and ``shape``; or anything that has a shape and a
    dtype, such as an array that is one example. Errors: WrongInputs, naming the input.
    """
    given: Any = inputs  # from outside: its type is a hope
    if not isinstance(given, Mapping) or not given:
        raise WrongInputs(
            "inputs: expected the function's inputs by name, such as {'x': {'dtype': 'float32', 'shape': [64]}}, "
            f"got {inputs!r}"
        )
    forms = {str(name): _form(str(name), value) for name, value in given.items()}
    for name in length_inputs(forms):
        forms.setdefault(name, dict(_LENGTH_FORM))
    return forms


def merged(inputs: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, InputForm]:
    """Return ``inputs`` in the server's form, each with the entries that ``details`` has for it.

    This is how a module says ``INPUTS = {"x": tf.TensorSpec([None])}`` and beside it ``{"x": {"max": 64}}``.
    Errors: WrongInputs if ``details`` names another input.
    """
    unknown = sorted(set(details) - set(inputs))
    if unknown:
        raise WrongInputs(f"details for {', '.join(map(repr, unknown))}: no such input; there is {', '.join(inputs)}")
    return normalized({name: {**_form(name, value), **details.get(name, {})} for name, value in inputs.items()})


def length_inputs(forms: Mapping[str, InputForm]) -> tuple[str, ...]:
    """Return the names of the inputs that the server fills in with a true length."""
    return tuple(
        dict.fromkeys(form[_LENGTH_INPUT] for form in forms.values() if isinstance(form.get(_LENGTH_INPUT), str))
    )


def _form(name: str, value: Any) -> InputForm:
    if isinstance(value, Mapping):
        if "dtype" not in value or "shape" not in value:
            raise WrongInputs(f"input {name!r}: expected a dict with 'dtype' and 'shape', got {dict(value)!r}")
        return {**value, "dtype": _dtype_name(name, value["dtype"]), "shape": _shape(name, value["shape"])}
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return {"dtype": _dtype_name(name, value.dtype), "shape": _shape(name, value.shape)}
    raise WrongInputs(
        f"input {name!r}: expected a tf.TensorSpec, a dict with 'dtype' and 'shape', or an array that is one "
        f"example, got {type(value).__name__}"
    )


def _dtype_name(name: str, dtype: Any) -> str:
    if isinstance(dtype, str):
        return "string" if dtype in {"str", "bytes", "object"} else dtype
    if hasattr(dtype, "as_numpy_dtype"):  # a TensorFlow dtype, without importing TensorFlow
        return str(dtype.name)
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise WrongInputs(f"input {name!r}: {dtype!r} is no dtype; write for example 'float32'") from error
    return "string" if found.kind in "OSU" else found.name


def _shape(name: str, shape: Any) -> list[int | None]:
    try:
        sizes = [None if size is None else int(size) for size in shape]
    except (TypeError, ValueError) as error:
        raise WrongInputs(
            f"input {name!r}: shape {shape!r} is no list of sizes; write null or None where examples differ"
        ) from error
    if any(size is not None and size < 0 for size in sizes):
        raise WrongInputs(f"input {name!r}: shape {sizes} has a negative size; write None where examples differ")
    return sizes
