"""``rowwise bench``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from rowwise.cli.exit_codes import failed
from rowwise.cli.options import AllowLooped, AsJson, Buckets, MaxBatch, Spec, failing_with_reason, spec_options
from rowwise.cli.screen import screen
from rowwise.cli.vectorize import declared
from rowwise.progress import RegistrationView, view_for
from rowwise.targets import load_target
from rowwise.version_status import Stage

if TYPE_CHECKING:
    from rowwise.served_bench import Timing

__all__ = ["bench", "timings_table"]

_CALLERS = [1, 8, 64]
_ROUNDS = 15


def bench(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            show_default=False,
            help="What [bold]rowwise vectorize[/bold] takes: a function of one example, a SavedModel directory or an "
            "archive of one.",
        ),
    ],
    *,
    callers: Annotated[
        list[int] | None,
        typer.Option(
            "--callers",
            min=1,
            max=4096,
            metavar="N",
            help="How many ask at once, with one example each (1, 8 and 64). Repeat for more.",
            show_default=False,
        ),
    ] = None,
    n_rounds: Annotated[
        int, typer.Option("--rounds", min=1, metavar="N", help="Rounds in which the two forms take turns.")
    ] = _ROUNDS,
    buckets: Buckets = None,
    max_batch: MaxBatch = None,
    allow_looped: AllowLooped = None,
    spec: Spec = None,
    as_json: AsJson = False,
) -> None:
    """Measure here what a function gains by being batched: its served path against calling it once for each example.

    The model is built as a server builds it, and its examples (its own, else random ones) are asked for by so many
    callers at once. Served: queue, planner, compiled batches, answers divided again. Looped: the traced function, once
    for each. Both begin with arrays and end with them, without HTTP, take turns round by round, and are told by their
    medians. [bold]rowwise vectorize[/bold] shows what each batch size costs.

    [bold]Examples[/bold]

        rowwise bench models.digits:predict

        rowwise bench ranker.py:rank --callers 1 --callers 32 --bucket 1 --bucket 32

        rowwise bench models.digits:predict --json | jq '.timings[] | [.callers, .gain]'

    Exit codes: 0 with the figures; 1 with the reason where the function can't be built or an example fails.
    """
    options = spec_options(spec, buckets=buckets, max_batch=max_batch, allow_looped=allow_looped)
    asked = sorted(set(callers or _CALLERS))
    with (
        failing_with_reason(),
        tempfile.TemporaryDirectory(prefix="rowwise-") as scratch,
        view_for(target, progress=None) as view,
    ):
        timings = _measure(target, options, Path(scratch), asked, n_rounds, view)
    if as_json:
        told = {"target": target, "rounds": n_rounds, "timings": [timing.to_json() for timing in timings]}
        typer.echo(json.dumps(told, indent=1))
        return
    console = screen()
    console.print(timings_table(timings))
    console.print(f"medians of {n_rounds} rounds in which the two took turns; without HTTP", style="dim")


def timings_table(timings: Sequence[Timing]) -> Table:
    """Return a line for each number of callers: what an example takes in each form, and the gain."""
    table = Table("callers", "looped µs", "served µs", "served/s", "gain", box=None, header_style="bold")
    for column in table.columns:
        column.justify = "right"
    for timing in timings:
        table.add_row(
            f"{timing.callers:,}",
            f"{timing.looped_s / timing.callers * 1e6:,.1f}",
            f"{timing.served_s / timing.callers * 1e6:,.1f}",
            f"{timing.callers / timing.served_s:,.0f}",
            f"{timing.gain:.1f}x",
        )
    return table


def _measure(
    text: str, options: dict[str, Any], scratch: Path, callers: list[int], n_rounds: int, view: RegistrationView
) -> list[Timing]:
    from server.tensorflow_notices import load_tensorflow, quieten
    from server.thread_pools import keep_pools_apart

    quieten()
    keep_pools_apart()  # as a server does, before TensorFlow makes a device
    view.show(Stage(name="trace"))
    load_tensorflow()
    from rowwise.served_bench import looped_function, measure_served
    from server.build.compile import build_artifact
    from server.errors import RowwiseError
    from vectorizer import VectorizerError

    output = scratch / "artifact"
    output.mkdir()
    try:
        declaration = declared(load_target(text), options, scratch)
        build_artifact(
            declaration,
            output,
            name="bench",
            version=1,
            report=lambda stage, done, total: view.show(Stage(name=stage, done=done, total=total)),
        )
        answer, examples = looped_function(declaration)
        return measure_served(
            output,
            answer,
            examples,
            callers=callers,
            n_rounds=n_rounds,
            on_round=lambda done, total: view.show(Stage(name="rounds", done=done, total=total)),
        )
    except (VectorizerError, RowwiseError) as error:
        raise failed(str(error)) from error
