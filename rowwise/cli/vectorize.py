"""``rowwise vectorize``."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rowwise.cli.certificate_report import certificate_report
from rowwise.cli.exit_codes import failed
from rowwise.cli.options import AllowLooped, AsJson, Buckets, MaxBatch, Spec, failing_with_reason, spec_options
from rowwise.cli.report import cost_chart, cost_table
from rowwise.cli.screen import screen
from rowwise.input_specs import normalized
from rowwise.progress import RegistrationView, view_for
from rowwise.targets import Target, load_target
from rowwise.version_status import Stage

if TYPE_CHECKING:
    from server.build.declaration import Declaration

__all__ = ["declared", "vectorize"]


def vectorize(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="A function of one example (models.digits:predict, ./digits.py:predict), or the path of a SavedModel "
            "directory or of an archive of one (.tar.gz, .zip).",
        ),
    ],
    *,
    buckets: Buckets = None,
    max_batch: MaxBatch = None,
    allow_looped: AllowLooped = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            metavar="X",
            help="Allowed difference from the function, relative to a row's largest magnitude; without it, that of "
            "the output's dtype.",
            show_default=False,
        ),
    ] = None,
    spec: Spec = None,
    as_json: AsJson = False,
) -> None:
    """Vectorize a function of ONE example here, without a server; print the certificate and what batches cost.

    What one example looks like is said by [bold]rowwise.example_model[/bold] or annotations on the function, by
    [bold]INPUTS[/bold] in its module, or by --spec. It is traced, vectorized, checked and measured just as a server
    does it.

    [bold]Examples[/bold]

        rowwise vectorize models.digits:predict

        rowwise vectorize ranker.py:rank --bucket 1 --bucket 32 --allow-looped NonMaxSuppressionV3

        rowwise vectorize ./exported_model --spec '{"signature": "score"}'

        rowwise vectorize models.digits:predict --json | jq .certificate.summary

    Exit codes: 0 with the certificate; 1 with the reason on standard error where the function can't be vectorized.
    """
    options = spec_options(spec, buckets=buckets, max_batch=max_batch, allow_looped=allow_looped, tolerance=tolerance)
    with failing_with_reason(), tempfile.TemporaryDirectory(prefix="rowwise-") as scratch:
        with view_for(target, progress=None) as view:
            certificate, costs = _build(target, options, Path(scratch), view)
        if as_json:
            typer.echo(json.dumps({"certificate": certificate, "costs": costs}, indent=1))
            return
        console = screen()
        for part in (certificate_report(certificate), cost_table(costs), cost_chart(costs)):
            console.print(part)
            console.print()


def _build(text: str, options: dict[str, Any], scratch: Path, view: RegistrationView) -> tuple[Any, Any]:
    """Return certificate and costs. Errors: typer.Exit(1), the reason printed; RowwiseClientError; BadParameter."""
    from server.tensorflow_notices import load_tensorflow, quieten

    quieten()
    view.show(Stage(name="trace"))
    load_tensorflow()
    from server.artifact import CERTIFICATE_FILE, COSTS_FILE
    from server.build.compile import build_artifact
    from server.errors import RowwiseError
    from vectorizer import VectorizerError

    output = scratch / "artifact"
    output.mkdir()
    try:
        build_artifact(
            declared(load_target(text), options, scratch),
            output,
            name="vectorized",
            version=1,
            report=lambda stage, done, total: view.show(Stage(name=stage, done=done, total=total)),
        )
    except (VectorizerError, RowwiseError) as error:
        raise failed(str(error)) from error
    return json.loads((output / CERTIFICATE_FILE).read_text()), json.loads((output / COSTS_FILE).read_text())


def declared(target: Target, options: dict[str, Any], scratch: Path) -> Declaration:
    """Declare what a command line names. Errors: those of declaring; typer.BadParameter for its options."""
    from pydantic import ValidationError

    from rowwise._trace import inputs_of
    from server.build.archive import extract_saved_model
    from server.build.declaration import declaration_of_function, declaration_of_saved_model
    from server.spec import ModelSpec

    inputs = options.get("inputs", target.inputs)
    if inputs is None:
        inputs = inputs_of(target.value)
    merged = {**target.spec, **options, "inputs": None if inputs is None else normalized(inputs)}
    try:
        spec = ModelSpec.model_validate(merged)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "spec"
        raise typer.BadParameter(f"{where}: {first['msg']}", param_hint="the options of the model") from error
    if not isinstance(target.value, Path):
        return declaration_of_function(target.value, None, spec)
    saved_model = target.value
    if saved_model.is_file():
        saved_model = extract_saved_model(saved_model, scratch / "unpacked")
    return declaration_of_saved_model(saved_model, spec)
