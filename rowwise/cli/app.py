"""All commands in one application."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rowwise import __version__
from rowwise.cli.bench import bench
from rowwise.cli.capacity import capacity
from rowwise.cli.certificate import certificate
from rowwise.cli.client_settings import defaults_of, read_client_file
from rowwise.cli.colours import FLAG, switch_off
from rowwise.cli.config import config
from rowwise.cli.demo import demo
from rowwise.cli.doctor import doctor
from rowwise.cli.exit_codes import ExitCode
from rowwise.cli.export import export
from rowwise.cli.loadtest import loadtest
from rowwise.cli.models import models
from rowwise.cli.options import AsJson
from rowwise.cli.pointing import activate, history, label, rollback
from rowwise.cli.predict import predict
from rowwise.cli.register import register
from rowwise.cli.serve import serve
from rowwise.cli.shadow import shadow
from rowwise.cli.show import show
from rowwise.cli.store import store
from rowwise.cli.token import token
from rowwise.cli.unload import unload
from rowwise.cli.vectorize import vectorize

__all__ = ["app", "main"]

app = typer.Typer(
    name="rowwise",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_HELP = f"""Write the model for one example; serve it by the batch.

[bold]A first session[/bold]

    rowwise serve                                    (in one terminal)

    rowwise register digits models.digits:predict    (in another)

    rowwise models

    rowwise predict digits --input pixels.npy

Where a command prints text for people, --json prints the same for programs; errors are sentences on standard error.

Exit codes: {"; ".join(f"{code.value} {code.meaning}" for code in ExitCode)}.
"""


@app.callback(help=_HELP)
def root(
    context: typer.Context,
    *,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--config",
            envvar="ROWWISE_CONFIG",
            metavar="FILE",
            help="TOML file of settings: those of the server, and in a table \\[client] url, token and ca of the "
            "commands that talk to one. Those read ~/.config/rowwise/config.toml without it.",
            show_default=False,
        ),
    ] = None,
    no_color: Annotated[
        bool, typer.Option(FLAG, help="No colours, as with NO_COLOR set; after the command it does as well.")
    ] = False,
) -> None:
    """Read what holds for all commands."""
    if no_color:
        switch_off()
    commands = context.command.commands  # type: ignore[attr-defined]
    asked = commands.get(context.invoked_subcommand)
    defaults: dict[str, Any] = {}
    if asked is not None and defaults_of({"": asked}, {}):
        defaults.update(defaults_of(commands, read_client_file(settings).values))
    source = context.get_parameter_source("settings")
    if source is not None and source.name == "COMMANDLINE":  # the environment they read themselves
        defaults.update({name: {"config": settings} for name in ("serve", "doctor")})
        defaults["config"] = {"show": {"config": settings}}
    context.default_map = defaults


@app.command()
def version(*, as_json: AsJson = False) -> None:
    """Print the version of this package.

    [bold]Example[/bold]

        rowwise version --json
    """
    typer.echo(json.dumps({"version": __version__}) if as_json else f"rowwise {__version__}")


app.command("serve")(serve)
app.command()(register)
app.command()(models)
app.command()(show)
app.command()(predict)
app.command()(certificate)
app.command()(capacity)
app.command()(vectorize)
app.command()(loadtest)
app.command()(bench)
app.command()(shadow)
app.add_typer(store)
app.command()(activate)
app.command()(rollback)
app.command()(unload)
app.command()(label)
app.command()(history)
app.command()(export)
app.add_typer(token)
app.add_typer(config)
app.command("doctor")(doctor)
app.command()(demo)


def main() -> None:
    """Run the command line of this process and exit with its code."""
    arguments = sys.argv[1:]
    if FLAG in arguments:
        # Wherever it stands, and before anything is printed: errors and help have colours too.
        switch_off()
        arguments = [argument for argument in arguments if argument != FLAG]
    app(args=arguments, prog_name="rowwise")
