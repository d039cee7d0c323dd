"""All commands in one application."""

from __future__ import annotations

import typer

from rowwise import __version__
from rowwise.cli.capacity import capacity
from rowwise.cli.certificate import certificate
from rowwise.cli.export import export
from rowwise.cli.loadtest import loadtest
from rowwise.cli.models import models
from rowwise.cli.pointing import activate, history, label, rollback
from rowwise.cli.predict import predict
from rowwise.cli.register import register
from rowwise.cli.serve import serve
from rowwise.cli.shadow import shadow
from rowwise.cli.store import store
from rowwise.cli.token import token
from rowwise.cli.vectorize import vectorize

__all__ = ["app", "main"]

app = typer.Typer(
    name="rowwise",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root() -> None:
    """Write the model for one example; serve it by the batch.

    [bold]A first session[/bold]

        rowwise serve                                              (in one terminal)

        rowwise register digits models.digits:predict              (in another)

        rowwise models

        rowwise predict digits --input pixels.npy

    Exit codes: 0 done; 1 failed, with the reason on standard error; 2 the command line is wrong.
    """


@app.command()
def version() -> None:
    """Print the version of this package."""
    typer.echo(f"rowwise {__version__}")


app.command()(serve)
app.command()(register)
app.command()(models)
app.command()(predict)
app.command()(certificate)
app.command()(capacity)
app.command()(vectorize)
app.command()(loadtest)
app.command()(shadow)
app.add_typer(store)
app.command()(activate)
app.command()(rollback)
app.command()(label)
app.command()(history)
app.command()(export)
app.add_typer(token)


def main() -> None:
    """Run the command line of this process and exit with its code."""
    app(prog_name="rowwise")
