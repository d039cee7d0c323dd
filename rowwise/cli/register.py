"""``rowwise register``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from rowwise.cli.options import Token, Url, connected
from rowwise.targets import load_target

__all__ = ["register"]


def register(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model on the server.")],
    target: Annotated[
        str,
        typer.Argument(
            metavar="PATH_OR_MODULE:FUNCTION",
            help="A function of one example (models.digits:predict, ./digits.py:predict), or the path of a SavedModel "
            "directory or of an archive of one (.tar.gz, .zip).",
        ),
    ],
    *,
    url: Url = "http://127.0.0.1:8000",
    token: Token = None,
    spec: Annotated[
        str | None,
        typer.Option(
            "--spec",
            metavar="JSON",
            help="Options of the registration as JSON, or @FILE that holds it: inputs, buckets, max_batch, "
            "allow_looped, queue, default_timeout_ms, tolerance, labels ...",
            show_default=False,
        ),
    ] = None,
    max_batch: Annotated[
        int | None,
        typer.Option("--max-batch", min=1, metavar="N", help="Largest batch to compile.", show_default=False),
    ] = None,
    allow_looped: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-looped",
            metavar="OP",
            help="An op type that may run once per row. Repeat for more.",
            show_default=False,
        ),
    ] = None,
    on_server: Annotated[
        bool,
        typer.Option(
            "--on-server",
            help="Let the server import MODULE:FUNCTION itself, instead of tracing it here. Its operator has to have "
            "allowed the package.",
        ),
    ] = False,
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            min=0.001,
            metavar="SECONDS",
            help="Longest wait until the model is available; without it, the server's own limit.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Register a function of ONE example; return when the server answers it by the batch.

    The function is traced here and uploaded with its weights. What one example looks like is said by
    [bold]rowwise.example_model[/bold] on the function, by [bold]INPUTS[/bold] in its module, or by --spec.

    [bold]Examples[/bold]

        rowwise register digits models.digits:predict

        rowwise register digits ./exported_model --spec '{"signature": "score"}'

        rowwise register ranker ranker.py:rank --max-batch 128 --allow-looped NonMaxSuppressionV3

    Exit codes: 0 when the model is AVAILABLE, else 1 with the reason on standard error.
    """
    options = _spec(spec)
    if max_batch is not None:
        options["max_batch"] = max_batch
    if allow_looped:
        options["allow_looped"] = allow_looped
    # TensorFlow's start-up notices would drown the reason of a failure.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with connected(url, token, register_timeout_s=timeout_s) as client:
        if on_server:
            status = client.register_import(name, target, **options)
        else:
            found = load_target(target)
            given = options.pop("inputs", None)
            declared = given if given is not None else found.inputs
            status = client.register(name, found.value, inputs=declared, **{**found.spec, **options})
    typer.echo(f"{status.model} version {status.version} is {status.state}")


def _spec(text: str | None) -> dict[str, Any]:
    """Read ``--spec``. Errors: typer.BadParameter."""
    if text is None:
        return {}
    try:
        value = json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{text!r} can't be read as JSON: {error}", param_hint="--spec") from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f"expected a JSON object, got {text}", param_hint="--spec")
    return value
