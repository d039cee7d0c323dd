"""The options that several commands share, and how a command ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowwise.cli.completion import model_names
from rowwise.cli.exit_codes import exit_code_of, failed
from rowwise.errors import RowwiseClientError

if TYPE_CHECKING:
    from rowwise.client import Client

__all__ = [
    "AllowLooped",
    "AsJson",
    "Buckets",
    "Ca",
    "MaxBatch",
    "ModelName",
    "Spec",
    "TimeoutS",
    "Token",
    "Url",
    "Version",
    "connected",
    "failing_with_reason",
    "spec_options",
]

Url = Annotated[
    str, typer.Option("--url", envvar="ROWWISE_URL", metavar="URL", help="The server, such as http://127.0.0.1:8000.")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar="ROWWISE_TOKEN",
        metavar="TOKEN",
        help="The server's token. The environment variable keeps it out of the process list.",
        show_default=False,
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca",
        envvar="ROWWISE_CA",
        metavar="FILE",
        help="Certificates in PEM that an https:// server's is checked with, instead of those of this machine.",
        show_default=False,
    ),
]
ModelName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the model.", autocompletion=model_names, show_default=False)
]
Version = Annotated[
    int | None,
    typer.Option("--version", min=1, metavar="N", help="A version; without it, the active one.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text for people.")]
Spec = Annotated[
    str | None,
    typer.Option(
        "--spec",
        metavar="JSON",
        help="Options of the registration as JSON, or @FILE that holds it: inputs, buckets, max_batch, "
        "allow_looped, queue, default_timeout_ms, tolerance, labels ...",
        show_default=False,
    ),
]
Buckets = Annotated[
    list[int] | None,
    typer.Option(
        "--bucket",
        min=1,
        metavar="N",
        help="A batch size to compile. Repeat for more; without it, powers of two for as long as they pay.",
        show_default=False,
    ),
]
MaxBatch = Annotated[
    int | None,
    typer.Option("--max-batch", min=1, metavar="N", help="Largest batch to compile.", show_default=False),
]
AllowLooped = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-looped",
        metavar="OP",
        help="An op type that may run once per row. Repeat for more.",
        show_default=False,
    ),
]
TimeoutS = Annotated[float, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Longest wait for an answer.")]


@contextmanager
def connected(
    url: str,
    token: str | None,
    *,
    ca: Path | None = None,
    timeout_s: float = 30.0,
    register_timeout_s: float | None = None,
) -> Iterator[Client]:
    """Give a client; an error of it ends the command with its exit code and its sentence on standard error."""
    from rowwise.client import Client  # takes a quarter of a second, which `rowwise serve` has no use for

    with (
        failing_with_reason(),
        Client(url, token, ca=ca, timeout_s=timeout_s, register_timeout_s=register_timeout_s) as client,
    ):
        yield client


@contextmanager
def failing_with_reason() -> Iterator[None]:
    """End the command with the exit code of a client's failure and the reason on standard error."""
    try:
        yield
    except RowwiseClientError as error:
        raise failed(str(error), exit_code_of(error)) from error


def spec_options(text: str | None, **given: Any) -> dict[str, Any]:
    """Read what ``--spec`` was given; options of their own that are ``given`` count more. Errors: BadParameter."""
    value: Any = {}
    if text is not None:
        try:
            value = json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
        except (OSError, ValueError) as error:
            raise typer.BadParameter(f"{text!r} can't be read as JSON: {error}", param_hint="--spec") from error
    if not isinstance(value, dict):
        raise typer.BadParameter(f"expected a JSON object, got {text}", param_hint="--spec")
    return value | {name: option for name, option in given.items() if option}
