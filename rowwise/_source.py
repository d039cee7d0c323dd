"""A function as source text with its weights, as the parts of the form that registers it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rowwise._registration import spec_as_json
from rowwise.errors import CannotLoad, WrongInputs
from rowwise.input_specs import normalized
from rowwise.values import encode_json

__all__ = ["source_parts"]

_Part = tuple[str, tuple[str | None, bytes, str]]


def source_parts(
    source: str | Path,
    *,
    weights: Mapping[str, Any] | Path | None,
    function: str | None,
    inputs: Mapping[str, Any] | None,
    spec: Mapping[str, Any],
) -> list[_Part]:
    """Return the form's parts, the specification first. ``source`` is the text, or the path of a file of it.

    Errors: CannotLoad for a file that can't be read; WrongInputs.
    """
    options = dict(spec)
    if inputs is not None:
        options["inputs"] = normalized(inputs)
    text = source.encode() if isinstance(source, str) else _read(source)
    parts: list[_Part] = [
        ("spec", (None, encode_json(spec_as_json(options)), "application/json")),
        ("source", (None, text, "text/x-python")),
    ]
    if function is not None:
        parts.append(("function", (None, function.encode(), "text/plain")))
    if weights is not None:
        arrays = _read(weights) if isinstance(weights, Path) else _packed(weights)
        parts.append(("weights", ("weights.npz", arrays, "application/octet-stream")))
    return parts


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CannotLoad(f"{path}: {error.strerror}") from error


def _packed(weights: Mapping[str, Any]) -> bytes:
    arrays = {name: np.asarray(value) for name, value in weights.items()}
    objects = sorted(name for name, array in arrays.items() if array.dtype.kind == "O")
    if objects:
        raise WrongInputs(f"weights {', '.join(objects)}: expected arrays of numbers or text, got Python objects")
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    return file.getvalue()
