"""``rowwise serve``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from rowwise.cli.exit_codes import failed
from rowwise.cli.serve_options import SERVE_OPTIONS, with_options

if TYPE_CHECKING:
    from server.settings import Settings

__all__ = ["flags", "serve", "settings_from"]


def _serve(*, given: Mapping[str, Any]) -> None:
    """Run the server until it is told to stop.

    Every option can also be set in the environment: ROWWISE_ and its name, such as ROWWISE_QUEUE_ROWS.
    SIGTERM and Ctrl-C stop it gently: requests that run or wait are answered first.

    [bold]Examples[/bold]

        rowwise serve

        rowwise serve --store /var/lib/rowwise --host 0.0.0.0 --port 80

        rowwise serve --model digits=models.digits:predict --import-package models

    [bold]rowwise config show[/bold] with the same options says what they come to, [bold]rowwise doctor[/bold] whether
    this machine can do it.
    """
    settings = settings_from(given)
    from server.tensorflow_notices import quieten

    quieten()
    if settings.http_workers:
        from server.supervise.supervisor import supervise as run
    else:
        from server.app import serve as run

    raise typer.Exit(run(settings))


serve = with_options(_serve, SERVE_OPTIONS)


def settings_from(options: Mapping[str, Any]) -> Settings:
    """Build the server's settings from the options that were given; environment, file and defaults fill the rest.

    Errors: typer.BadParameter that names where the wrong one came from; typer.Exit(1) if this installation has no
        server.
    """
    try:
        from pydantic import ValidationError

        from server.settings import Settings
        from server.settings_origins import fault_of
    except ModuleNotFoundError as error:
        raise failed(f"the server is not part of this installation (no module {error.name!r})") from error
    given = flags(options)
    try:
        return Settings.read(given)
    except ValidationError as error:
        place, sentence = fault_of(error, given)
        raise typer.BadParameter(sentence, param_hint=place) from error
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--config / ROWWISE_CONFIG") from error


def flags(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, as ``Settings.read`` takes them."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
        if value not in (None, [])
    }
