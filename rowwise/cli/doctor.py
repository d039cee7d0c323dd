"""``rowwise doctor``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rowwise.cli.exit_codes import ExitCode
from rowwise.cli.options import AsJson, Ca
from rowwise.cli.serve import flags
from rowwise.cli.serve_options import SERVE_OPTIONS, with_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from rowwise.doctor import Finding

__all__ = ["doctor"]

_MARKS = {"fine": ("ok", "green"), "advice": ("!", "yellow"), "wrong": ("WRONG", "bold red")}
_COLUMNS = 7


def _doctor(
    *,
    given: Mapping[str, Any],
    running: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            help="Look at the server that runs there, too. Its ports and its store are then meant to be in use.",
            show_default=False,
        ),
    ] = None,
    ca: Ca = None,
    is_quick: Annotated[
        bool, typer.Option("--quick", help="Leave out what takes seconds: importing TensorFlow, trying the jail.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look whether this machine can serve, and say of what is wrong why it matters and what to do.

    Looks at Python, TensorFlow, processor, devices, cores and the limits of control groups, file descriptors, memory,
    processes, the store and its disk, temporary files, ports, settings, tokens, certificates, the clock, and how builds
    can be shut in. Takes the options of [bold]rowwise serve[/bold]: those of your server make it look at its store, its
    ports and its files. Nothing is changed.

    [bold]Examples[/bold]

        rowwise doctor

        rowwise doctor --config /etc/rowwise.toml --store /var/lib/rowwise

        rowwise doctor --quick --url http://127.0.0.1:8000

        rowwise doctor --json | jq '.findings[] | select(.level == "wrong")'

    Exit codes: 0 nothing is wrong; 1 something is. Advice alone ends with 0.
    """
    from rowwise.doctor import examine

    console = Console()
    with _saying(console, shown=not as_json) as say:
        findings = []
        for finding in examine(flags(given), url=running, ca=ca, is_quick=is_quick, on_check=say):
            findings.append(finding)
            if not as_json:
                _print(console, finding)
    n_wrong = sum(finding.level == "wrong" for finding in findings)
    n_advice = sum(finding.level == "advice" for finding in findings)
    if as_json:
        told = {"ok": not n_wrong, "findings": [finding.to_json() for finding in findings]}
        typer.echo(json.dumps(told, indent=1))
    else:
        console.print(f"{n_wrong} wrong, {n_advice} with advice, of {len(findings)}", highlight=False)
    if n_wrong:
        raise typer.Exit(ExitCode.FAILED)


def _print(console: Console, finding: Finding) -> None:
    mark, style = _MARKS[finding.level]
    line = Text.assemble((f"{mark:<{_COLUMNS}}", style), (f"{finding.check}: ", "bold"), finding.what)
    console.print(line, soft_wrap=True)
    for label, text in (("why", finding.why), ("do", finding.to_do)):
        if text:
            console.print(Text.assemble(" " * _COLUMNS, (f"{label:<4}", "dim"), text), soft_wrap=True)


@contextmanager
def _saying(console: Console, *, shown: bool) -> Iterator[Callable[[str], None]]:
    """Give what shows, on a terminal, which check runs, below what was found so far: some take seconds."""
    if not shown or not console.is_terminal:
        yield lambda name: None
        return
    with console.status("") as status:
        yield lambda name: status.update(f"Looking at {name} ...")


doctor = with_options(_doctor, SERVE_OPTIONS)
