"""``rowwise predict``."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from rowwise.cli.options import Ca, TimeoutS, Token, Url, Version, connected
from rowwise.values import decode_json, encode_json, shortest, to_wire

__all__ = ["predict"]


def predict(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")],
    *,
    as_json: Annotated[
        str | None,
        typer.Option(
            "--json",
            metavar="JSON",
            help="One example: a value where the model has one input, else an object of its inputs. '-' reads "
            "standard input.",
            show_default=False,
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[NAME=]FILE",
            help="One input of the example from a .npy file, or all of them from an .npz file. Repeat for more.",
            show_default=False,
        ),
    ] = None,
    derivative: Annotated[
        str | None,
        typer.Option(
            "--derivative",
            metavar="KIND",
            help="Print a derivative that the model declares, not its outputs: gradient, jacobian or hessian.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="NAME", help="The output to differentiate.", show_default=False),
    ] = None,
    wrt: Annotated[
        list[str] | None,
        typer.Option(
            "--wrt",
            metavar="NAME",
            help="The input or variable to differentiate by. Repeat for more.",
            show_default=False,
        ),
    ] = None,
    version: Version = None,
    url: Url = "http://127.0.0.1:8000",
    token: Token = None,
    ca: Ca = None,
    timeout_s: TimeoutS = 30.0,
) -> None:
    """Ask a model about ONE example and print its outputs as JSON.

    [bold]Examples[/bold]

        rowwise predict double --json 21

        rowwise predict mix --json '{"x": [1, 2, 3], "weight": 0.5}'

        rowwise predict digits --input pixels.npy

        rowwise predict mix --input x=x.npy --input weight=w.npy

        rowwise predict mix --json '{"x": [1, 2, 3], "weight": 0.5}' --derivative gradient --wrt weight

    Exit codes: 0 with the outputs; 1 with the reason on standard error.
    """
    if derivative is None and (output is not None or wrt):
        raise typer.BadParameter(
            "they choose a derivative: say which kind by --derivative", param_hint="--output / --wrt"
        )
    if (as_json is None) == (not inputs):
        raise typer.BadParameter("give the example either by --json or by --input", param_hint="--json / --input")
    example = _from_json(as_json) if as_json is not None else _from_files(inputs or [])
    with connected(url, token, ca=ca, timeout_s=timeout_s) as client:
        if derivative is None:
            (prediction,) = client.predict_many(name, [example], version=version)
        else:
            (prediction,) = client.derivative_many(
                derivative, name, [example], output=output, wrt=wrt or None, version=version
            )
    outputs = prediction if isinstance(prediction, dict) else {"": prediction}
    # Numbers as they are: in the shortest form of their own precision.
    plain = {
        key: shortest(value) if value.dtype.kind in "biuf" else to_wire(value, where=f"output {key!r}")
        for key, value in outputs.items()
    }
    typer.echo(encode_json(plain if isinstance(prediction, dict) else plain[""]).decode())


def _from_json(text: str) -> Any:
    try:
        example = decode_json((sys.stdin.read() if text == "-" else text).encode())
    except ValueError as error:
        raise typer.BadParameter(f"this is not JSON: {error}", param_hint="--json") from error
    if isinstance(example, dict) and set(example) != {"b64"}:
        return {key: _with_bytes(value) for key, value in example.items()}
    return _with_bytes(example)


def _with_bytes(value: Any) -> Any:
    """Return ``value`` with every ``{"b64": ...}`` in it as the bytes that it means."""
    if isinstance(value, list):
        return [_with_bytes(entry) for entry in value]
    if isinstance(value, dict) and set(value) == {"b64"}:
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (TypeError, ValueError) as error:
            raise typer.BadParameter(f"{value!r} is no base64: {error}", param_hint="--json") from error
    return value


def _from_files(entries: list[str]) -> Any:
    """Return the bare value of a single unnamed .npy file, else a dict of named ones."""
    example: dict[str, Any] = {}
    for entry in entries:
        name, equals, path = entry.partition("=")
        if not equals:
            name, path = "", entry
        try:
            loaded = np.load(Path(path), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise typer.BadParameter(f"{path} can't be read as a NumPy file: {error}", param_hint="--input") from error
        if isinstance(loaded, np.ndarray):
            example[name] = loaded
        else:
            with loaded:
                example.update(loaded)
    if list(example) == [""]:
        return example[""]
    if "" in example:
        raise typer.BadParameter("several inputs need their names: --input x=x.npy", param_hint="--input")
    return example
