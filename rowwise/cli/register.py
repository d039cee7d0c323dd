"""``rowwise register``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rowwise.cli.options import AllowLooped, AsJson, Ca, MaxBatch, Spec, Token, Url, connected, spec_options
from rowwise.cli.registration_options import (
    Activate,
    BatchDimension,
    Buckets,
    DefaultTimeoutMs,
    Derivatives,
    Invariant,
    Labels,
    Outputs,
    Queue,
    Random,
    Signature,
    Tolerance,
    with_options,
)
from rowwise.targets import load_target

__all__ = ["register"]


def register(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model on the server.")],
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH_OR_MODULE:FUNCTION]",
            show_default=False,
            help="A function of one example (models.digits:predict, ./digits.py:predict), or the path of a SavedModel "
            "directory or of an archive of one (.tar.gz, .zip).",
        ),
    ] = None,
    *,
    url: Url = "http://127.0.0.1:8000",
    token: Token = None,
    ca: Ca = None,
    spec: Spec = None,
    buckets: Buckets = None,
    max_batch: MaxBatch = None,
    allow_looped: AllowLooped = None,
    signature: Signature = None,
    batch_dimension: BatchDimension = None,
    outputs: Outputs = None,
    queue: Queue = None,
    default_timeout_ms: DefaultTimeoutMs = None,
    invariant: Invariant = None,
    tolerance: Tolerance = None,
    random: Random = None,
    derivatives: Derivatives = None,
    labels: Labels = None,
    activate: Activate = None,
    on_server: Annotated[
        bool,
        typer.Option(
            "--on-server",
            help="Let the server import MODULE:FUNCTION itself, instead of tracing it here. Its operator has to have "
            "allowed the package.",
        ),
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--source",
            metavar="FILE",
            help="Python file that the server traces, in place of a target: nothing of it runs here. Its operator has "
            "to have allowed it.",
            show_default=False,
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights", metavar="FILE", help="Arrays (.npz) for --source: weights[name].", show_default=False
        ),
    ] = None,
    function: Annotated[
        str | None,
        typer.Option("--function", metavar="NAME", help="The function in --source (predict).", show_default=False),
    ] = None,
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
    as_json: AsJson = False,
) -> None:
    """Register a function of ONE example; return when the server answers it by the batch.

    The function is traced here and uploaded with its weights. What one example looks like is said by
    [bold]rowwise.example_model[/bold] or annotations on the function, by [bold]INPUTS[/bold] in its module, or by
    --spec. Options go before what --spec says, and that before what the function says itself.

    [bold]Examples[/bold]

        rowwise register digits models.digits:predict

        rowwise register digits ./exported_model --signature score --buckets 1,8,64

        rowwise register ranker ranker.py:rank --max-batch 128 --allow-looped NonMaxSuppressionV3 --no-activate

        rowwise register scorer --source scorer.py --weights scorer.npz --function score

    Exit codes: 0 when the model is AVAILABLE, else 1 with the reason on standard error.
    """
    options = with_options(
        spec_options(spec),
        buckets=buckets,
        max_batch=max_batch,
        allow_looped=allow_looped,
        signature=signature,
        batch_dimension=batch_dimension,
        outputs=outputs,
        queue=queue,
        default_timeout_ms=default_timeout_ms,
        invariant=invariant,
        tolerance=tolerance,
        random=random,
        derivatives=derivatives,
        labels=labels,
        activate=activate,
    )
    if (target is None) == (source is None):
        raise typer.BadParameter("name a target or a --source, one of them")
    if source is None and (weights is not None or function is not None):
        raise typer.BadParameter("--weights and --function go with --source")
    with connected(url, token, ca=ca, register_timeout_s=timeout_s) as client:
        if target is None:
            status = client.register(name, source=source, weights=weights, function=function, **options)
        elif on_server:
            status = client.register_import(name, target, **options)
        else:
            client.ready()  # a server that can't be reached is said at once, not when TensorFlow is loaded
            _load_tensorflow_for(target)
            found = load_target(target)
            given = options.pop("inputs", None)
            declared = given if given is not None else found.inputs
            status = client.register(name, found.value, inputs=declared, **{**found.spec, **options})
    if as_json:
        typer.echo(json.dumps(status.to_json(), indent=1))
    else:
        typer.echo(f"{status.model} version {status.version} is {status.state}")


def _load_tensorflow_for(target: str) -> None:
    """Load TensorFlow before a function's module does, so that its notices don't drown the reason of a failure."""
    from server.tensorflow_notices import load_tensorflow, quieten

    quieten()
    path = Path(target.partition(":")[0])
    if path.suffix == ".py" or not path.exists():
        load_tensorflow()
