"""The options that several commands share, and how a command ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from rowwise.client import Client
from rowwise.errors import RowwiseClientError

__all__ = ["AsJson", "TimeoutS", "Token", "Url", "Version", "connected", "failing_with_reason"]

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
Version = Annotated[
    int | None,
    typer.Option("--version", min=1, metavar="N", help="A version; without it, the active one.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text for people.")]
TimeoutS = Annotated[float, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Longest wait for an answer.")]


@contextmanager
def connected(
    url: str, token: str | None, *, timeout_s: float = 30.0, register_timeout_s: float | None = None
) -> Iterator[Client]:
    """Give a client; an error of it ends the command with exit code 1 and its sentence on standard error."""
    with (
        failing_with_reason(),
        Client(url, token, timeout_s=timeout_s, register_timeout_s=register_timeout_s) as client,
    ):
        yield client


@contextmanager
def failing_with_reason() -> Iterator[None]:
    """End the command with exit code 1 and the reason on standard error where the client fails."""
    try:
        yield
    except RowwiseClientError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
