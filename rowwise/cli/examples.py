"""The examples of ``rowwise predict``: one on the command line or in files, or many in a file."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import typer

from rowwise._metadata import RemoteSignature
from rowwise.cli.images import IMAGE_SUFFIXES, ImageOptions, UnfitImage, read_image
from rowwise.values import decode_json

__all__ = ["example_of_files", "example_of_json", "examples_of_file", "has_images"]

_LINES = (".jsonl", ".ndjson")


def has_images(entries: list[str]) -> bool:
    """Return whether one of these files is an image, so that the model's shapes have to be known."""
    return any(entry.lower().endswith(IMAGE_SUFFIXES) for entry in entries)


def example_of_json(text: str) -> Any:
    """Return the example of ``--json``; "-" reads standard input. Errors: typer.BadParameter."""
    return _from_json(sys.stdin.read() if text == "-" else text, "--json")


def example_of_files(entries: list[str], signature: RemoteSignature | None, options: ImageOptions) -> Any:
    """Return the bare value of a single unnamed file, else a dict of named ones. Errors: typer.BadParameter."""
    example: dict[str, Any] = {}
    for entry in entries:
        name, equals, path = entry.partition("=")
        if not equals:
            name, path = "", entry
        if has_images([path]):
            example[name] = _image(Path(path), name, signature, options, "--input")
            continue
        loaded = _numpy(Path(path), "--input")
        example.update(loaded if isinstance(loaded, dict) else {name: loaded})
    if list(example) == [""]:
        return example[""]
    if "" in example:
        raise typer.BadParameter("several inputs need their names: --input x=x.npy", param_hint="--input")
    return example


def examples_of_file(entry: str, signature: RemoteSignature | None, options: ImageOptions) -> Iterator[Any]:
    """Yield the examples of a file: lines of JSON ("-": standard input), rows of arrays, or an image.

    Errors: typer.BadParameter, which names the line.
    """
    hint = "--examples"
    path = Path(entry)
    if has_images([entry]):
        yield _image(path, "", signature, options, hint)
    elif path.suffix in {".npy", ".npz"}:
        yield from _rows(path, _numpy(path, hint))
    elif entry == "-" or path.suffix in _LINES:
        yield from _lines(entry)
    else:
        kinds = ", ".join((*_LINES, ".npy", ".npz", *IMAGE_SUFFIXES))
        raise typer.BadParameter(
            f"{entry}: expected {kinds}, or - for lines of JSON on standard input", param_hint=hint
        )


def _lines(entry: str) -> Iterator[Any]:
    try:
        with sys.stdin if entry == "-" else Path(entry).open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield _from_json(line, "--examples", where=f"{entry}:{number}: ")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise typer.BadParameter(f"{entry} can't be read: {reason}", param_hint="--examples") from error


def _rows(path: Path, loaded: Any) -> Iterator[Any]:
    columns = loaded if isinstance(loaded, dict) else {"": loaded}
    lengths = {name: len(values) if values.ndim else None for name, values in columns.items()}
    if len(set(lengths.values())) != 1 or None in lengths.values():
        raise typer.BadParameter(
            f"{path}: the first axis counts examples, and must be as long for each input; got {lengths}",
            param_hint="--examples",
        )
    for index in range(next(iter(lengths.values())) or 0):
        row = {name: values[index] for name, values in columns.items()}
        yield row if isinstance(loaded, dict) else row[""]


def _image(
    path: Path, name: str, signature: RemoteSignature | None, options: ImageOptions, hint: str
) -> np.ndarray[Any, Any]:
    assert signature is not None, "who has images has asked for it"
    if not name and len(signature.inputs) != 1:
        raise typer.BadParameter(
            f"the model has the inputs {', '.join(signature.inputs)}: say which the image is, --input NAME={path}",
            param_hint=hint,
        )
    which = name or signature.inputs[0]
    try:
        return read_image(
            path,
            options=options,
            shape=signature.input_shapes.get(which),
            dtype=signature.input_dtypes.get(which),
        )
    except UnfitImage as error:
        raise typer.BadParameter(str(error), param_hint=hint) from error


def _numpy(path: Path, hint: str) -> Any:
    """Return an array, or a dict of those of an .npz file."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return dict(loaded)
    except (OSError, ValueError, EOFError) as error:
        raise typer.BadParameter(f"{path} can't be read as a NumPy file: {error}", param_hint=hint) from error


def _from_json(text: str, hint: str, *, where: str = "") -> Any:
    try:
        example = decode_json(text.encode())
    except ValueError as error:
        raise typer.BadParameter(f"{where}this is not JSON: {error}", param_hint=hint) from error
    if isinstance(example, dict) and set(example) != {"b64"}:
        return {key: _with_bytes(value, hint) for key, value in example.items()}
    return _with_bytes(example, hint)


def _with_bytes(value: Any, hint: str) -> Any:
    """Return ``value`` with every ``{"b64": ...}`` in it as the bytes that it means."""
    if isinstance(value, list):
        return [_with_bytes(entry, hint) for entry in value]
    if isinstance(value, dict) and set(value) == {"b64"}:
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (TypeError, ValueError) as error:
            raise typer.BadParameter(f"{value!r} is no base64: {error}", param_hint=hint) from error
    return value
