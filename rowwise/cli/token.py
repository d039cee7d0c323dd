"""``rowwise token``: who may do what on a server, in the file that it goes by."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowwise.cli.exit_codes import failed
from rowwise.cli.options import AsJson

if TYPE_CHECKING:
    from server.rights import TokenEntry

__all__ = ["token"]

token = typer.Typer(
    name="token",
    help="Make, list and revoke the tokens of a server's --tokens-file. A server that runs notices within a second.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_File = Annotated[
    Path,
    typer.Option("--file", envvar="ROWWISE_TOKENS_FILE", metavar="FILE", help="The tokens file.", show_default=False),
]
_Name = Annotated[str, typer.Argument(help="What logs call it: a person, a program, a team.", show_default=False)]


@token.command()
def make(
    name: _Name,
    *,
    file: _File,
    scopes: Annotated[
        list[str],
        typer.Option(
            "--scope", metavar="SCOPE", help="predict, read or manage (which includes read). Repeat for more."
        ),
    ],
    models: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="PATTERN", help="Models by name, such as 'ranker-*' (all). Repeat for more."),
    ] = None,
    predict_rows_per_s: Annotated[
        float | None, typer.Option("--predict-rows-per-s", metavar="N", help="Most rows a second that it may predict.")
    ] = None,
    predict_rows_burst: Annotated[
        float | None,
        typer.Option("--predict-rows-burst", metavar="N", help="Most rows at once, after a pause (a second's)."),
    ] = None,
    manage_per_s: Annotated[
        float | None, typer.Option("--manage-per-s", metavar="N", help="Most other requests a second.")
    ] = None,
    manage_burst: Annotated[
        float | None, typer.Option("--manage-burst", metavar="N", help="Most of them at once (a second's).")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="WHEN",
            help="When it ends: 30d, 12h, 4w from now, or 2027-01-31 (UTC), or a time with its zone (never).",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it, this once: the file keeps its hash.

    [bold]Examples[/bold]

        rowwise token make shop --file tokens.toml --scope predict --model 'ranker-*' --predict-rows-per-s 500

        rowwise token make ci --file tokens.toml --scope manage --expires 90d
    """
    from pydantic import ValidationError

    from server.rights import TokenEntry, add_token, digest_of, new_token, parse_expiry

    secret = new_token()
    try:
        ends = None if expires is None else parse_expiry(expires, now=datetime.now(UTC))
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(str(error), param_hint="--expires") from error
    given: dict[str, Any] = {
        "models": models,
        "expires": ends,
        "predict_rows_per_s": predict_rows_per_s,
        "predict_rows_burst": predict_rows_burst,
        "manage_per_s": manage_per_s,
        "manage_burst": manage_burst,
    }
    try:
        entry = TokenEntry.model_validate(
            {
                "name": name,
                "sha256": digest_of(secret.encode()).hex(),
                "scopes": scopes,
                **{key: value for key, value in given.items() if value is not None},
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(first["msg"], param_hint=str(first["loc"][0])) from error
    try:
        add_token(file, entry)
    except (OSError, ValueError) as error:
        raise _failed(error) from None
    typer.echo(json.dumps({"name": name, "token": secret}, indent=1) if as_json else secret)


@token.command(name="list")
def list_(*, file: _File, as_json: AsJson = False) -> None:
    """List the tokens of the file by their names: what each may do, on which models, how often, until when.

    [bold]Example[/bold]

        rowwise token list --file tokens.toml --json
    """
    from server.rights import read_tokens

    try:
        entries = read_tokens(file)
    except ValueError as error:
        raise _failed(error) from None
    if as_json:
        typer.echo(json.dumps([entry.model_dump(mode="json", exclude={"sha256"}) for entry in entries], indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "scopes", "models", "rows/s", "others/s", "expires", box=None, header_style="bold")
    for entry in entries:
        rates = ["" if rate is None else f"{rate:g}" for rate in (entry.predict_rows_per_s, entry.manage_per_s)]
        table.add_row(
            entry.name, ", ".join(entry.scopes), ", ".join(entry.models).replace("[", r"\["), *rates, _until(entry)
        )
    Console().print(table)


@token.command()
def revoke(name: _Name, *, file: _File, as_json: AsJson = False) -> None:
    """Take a token out of the file: whoever has it is a stranger from then on.

    [bold]Example[/bold]

        rowwise token revoke shop --file tokens.toml
    """
    from server.rights import revoke_token

    try:
        revoke_token(file, name)
    except (OSError, ValueError) as error:
        raise _failed(error) from None
    typer.echo(json.dumps({"name": name, "revoked": True}, indent=1) if as_json else f"{name}: revoked")


def _until(entry: TokenEntry) -> str:
    if entry.expires is None:
        return ""
    left = entry.expires - datetime.now(UTC)
    when = "EXPIRED" if left <= timedelta() else f"in {left.days} days" if left.days else "in less than a day"
    return f"{entry.expires:%Y-%m-%d %H:%M %Z} ({when})"


def _failed(error: OSError | ValueError) -> typer.Exit:
    return failed(f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error))
