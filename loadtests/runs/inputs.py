"""Examples to ask with: from a file, or made from the model's signature.

Three kinds of file, by their ending:

- ``.jsonl``: one example a line, as ``rowwise predict --json`` takes it: the bare value of a model with one input,
  else an object by input. ``{"b64": "..."}`` is a byte string. This is what ``rowwise loadtest --record`` writes.
- ``.npy``: the only input of many examples, along the first axis; without that axis, of one.
- ``.npz``: an array for each input, by its name, likewise.
"""

from __future__ import annotations

import base64
import random
import string
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rowwise._metadata import RemoteSignature
from rowwise.values import decode_json

__all__ = ["MAX_EXAMPLES", "InputsUnreadable", "generated", "recorded"]

#: Examples that are read of a file: they are kept as bytes, and after so many they begin again.
MAX_EXAMPLES = 10_000
_MAX_LINE_BYTES = 64 * 1024 * 1024
_ENDINGS = (".jsonl", ".npy", ".npz")
_WHOLE_NUMBERS = 2
_LETTERS = 8

Example = Any


class InputsUnreadable(Exception):
    """A file holds no examples of this model. ``str`` says where, and what was expected."""


def recorded(path: Path, signature: RemoteSignature) -> list[Example]:
    """Return the examples of a file, at most ``MAX_EXAMPLES``. Errors: InputsUnreadable."""
    if path.suffix not in _ENDINGS:
        raise InputsUnreadable(f"{path}: expected a file that ends in {', '.join(_ENDINGS)}")
    try:
        found = _from_lines(path) if path.suffix == _ENDINGS[0] else _from_arrays(path, signature)
    except OSError as error:
        raise InputsUnreadable(f"{path}: {error.strerror or error}") from error
    if not found:
        raise InputsUnreadable(f"{path}: no example is in it")
    return found


def _from_lines(path: Path) -> list[Example]:
    found = []
    with path.open("rb") as file:
        for number, line in enumerate(islice(file, MAX_EXAMPLES), 1):
            if not line.strip():
                continue
            if len(line) > _MAX_LINE_BYTES:
                raise InputsUnreadable(f"{path}:{number}: longer than {_MAX_LINE_BYTES >> 20} MiB")
            try:
                found.append(_sendable(decode_json(line)))
            except ValueError as error:
                raise InputsUnreadable(f"{path}:{number}: this is not JSON: {error}") from error
    return found


def _sendable(value: Any) -> Any:
    """Return JSON as an example: byte strings as such."""
    if isinstance(value, list):
        return [_sendable(entry) for entry in value]
    if isinstance(value, dict):
        if set(value) == {"b64"}:
            return base64.b64decode(value["b64"], validate=True)
        return {name: _sendable(entry) for name, entry in value.items()}
    return value


def _from_arrays(path: Path, signature: RemoteSignature) -> list[Example]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            if len(signature.required) != 1:
                raise InputsUnreadable(
                    f"{path}: one array, but the model takes {', '.join(signature.inputs)}: an .npz file holds one each"
                )
            columns = {signature.required[0]: loaded}
        else:
            with loaded:
                columns = {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError) as error:
        raise InputsUnreadable(f"{path} can't be read as a NumPy file: {error}") from error
    unknown = set(columns) - signature.known
    missing = set(signature.required) - set(columns)
    if unknown or missing:
        raise InputsUnreadable(
            f"{path}: expected arrays {', '.join(map(repr, signature.inputs))}, got {', '.join(map(repr, columns))}"
        )
    rows = {name: _rows(path, name, column, signature) for name, column in columns.items()}
    counts = {name: len(column) for name, column in rows.items()}
    if len(set(counts.values())) > 1:
        raise InputsUnreadable(f"{path}: the arrays hold different numbers of examples: {counts}")
    n = min(MAX_EXAMPLES, *counts.values())
    return [{name: column[row] for name, column in rows.items()} for row in range(n)]


def _rows(path: Path, name: str, column: np.ndarray[Any, Any], signature: RemoteSignature) -> np.ndarray[Any, Any]:
    """Return an array whose first axis counts examples."""
    shape = signature.input_shapes.get(name)
    if shape is None or column.ndim == len(shape) + 1:
        return column if column.ndim else column[None]
    if column.ndim == len(shape):
        return column[None]
    raise InputsUnreadable(
        f"{path}: input {name!r}: expected examples of shape {list(shape)} along the first axis, "
        f"got an array of shape {list(column.shape)}"
    )


def generated(signature: RemoteSignature, *, n: int, seed: int, max_length: int) -> list[Example]:
    """Return ``n`` random examples of what the model's metadata says.

    Floats are from [0, 1), whole numbers 0 or 1, strings eight letters: values that most models take, and that are
    like no model's real ones. A dimension that differs between examples is 1 to ``max_length``, the same for all
    inputs of an example. Optional inputs are left out. Errors: InputsUnreadable, for a shape that isn't known.
    """
    rng, letters = np.random.default_rng(seed), random.Random(seed)
    examples: list[Example] = []
    for _ in range(n):
        length = int(rng.integers(1, max_length + 1))
        values: dict[str, Any] = {}
        for name in signature.required:
            shape = signature.input_shapes.get(name)
            if shape is None:
                raise InputsUnreadable(f"input {name!r}: its shape is not known, so give real inputs by --inputs")
            sizes = tuple(length if size is None else size for size in shape)
            values[name] = _value(signature.input_dtypes.get(name), sizes, rng, letters)
        examples.append(values)
    return examples


def _value(
    dtype: np.dtype[Any] | None, shape: tuple[int, ...], rng: np.random.Generator, letters: random.Random
) -> Any:
    if dtype is None:
        words = ["".join(letters.choices(string.ascii_lowercase, k=_LETTERS)) for _ in range(int(np.prod(shape)))]
        return np.array(words, dtype=object).reshape(shape)
    if dtype.kind == "f":
        return rng.random(shape).astype(dtype)
    return rng.integers(0, _WHOLE_NUMBERS, shape).astype(dtype)
