"""``rowwise export``."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from rowwise.cli.exit_codes import failed
from rowwise.cli.options import AllowLooped, AsJson, Buckets, MaxBatch, Spec, failing_with_reason, spec_options
from rowwise.cli.vectorize import declared
from rowwise.progress import view_for
from rowwise.targets import load_target
from rowwise.version_status import Stage

__all__ = ["export"]


def export(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="What [bold]rowwise vectorize[/bold] takes: MODULE:FUNCTION, a SavedModel directory or an archive of "
            "one; with --store, the name of a model in it.",
        ),
    ],
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A new directory for the SavedModel.")],
    *,
    store: Annotated[
        Path | None,
        typer.Option(
            "--store",
            metavar="STORE",
            help="A server's store: export the graphs that it serves, as they were built and checked. The server may "
            "be running.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option("--version", min=1, metavar="N", help="With --store: a version; without it, the active one."),
    ] = None,
    buckets: Buckets = None,
    max_batch: MaxBatch = None,
    allow_looped: AllowLooped = None,
    spec: Spec = None,
    as_json: AsJson = False,
) -> None:
    """Write the batched graphs as a plain SavedModel, for TensorFlow Serving and tf.saved_model.load.

    Its signature [bold]serving_default[/bold] takes any number of rows and chooses the compiled batch size inside of
    the graph; [bold]bucket_8[/bold] and its kind are the compiled graphs themselves. Nothing of Rowwise is needed to
    load it.

    [bold]Examples[/bold]

        rowwise export models.digits:predict exported/digits/1

        rowwise export ./exported_keras_model exported/1 --spec '{"batch_dimension": true}' --bucket 1 --bucket 32

        rowwise export digits exported/digits/1 --store /var/lib/rowwise

    Exit codes: 0 done; 1 with the reason on standard error.
    """
    options = spec_options(spec, buckets=buckets, max_batch=max_batch, allow_looped=allow_looped)
    if store is not None and options:
        raise typer.BadParameter("a stored model is exported as it was built, without options", param_hint="--store")
    if version is not None and store is None:
        raise typer.BadParameter("it goes with --store", param_hint="--version")
    with failing_with_reason():
        if store is None:
            _export_target(target, options, directory)
        else:
            _export_stored(target, version, store, directory)
    typer.echo(json.dumps({"directory": str(directory)}, indent=1) if as_json else f"wrote {directory}")


def _export_target(text: str, options: dict[str, Any], directory: Path) -> None:
    with view_for(text, progress=None) as view, tempfile.TemporaryDirectory(prefix="rowwise-") as scratch:
        view.show(Stage(name="trace"))
        _load_tensorflow()
        from server.errors import RowwiseError
        from vectorizer import VectorizerError, export_saved_model

        try:
            declaration = declared(load_target(text), options, Path(scratch))
            vectorized = declaration.vectorized(
                progress=lambda stage, done, total: view.show(Stage(name=stage, done=done, total=total))
            )
            export_saved_model(vectorized, directory, owner=declaration.owner)
        except (VectorizerError, RowwiseError, ValueError) as error:
            raise failed(str(error)) from error


def _export_stored(name: str, version: int | None, store: Path, directory: Path) -> None:
    from server.errors import RowwiseError
    from server.store import stored_artifact

    try:
        artifact = stored_artifact(store, name, version)
        _load_tensorflow()
        from server.build.export import export_artifact

        export_artifact(artifact, directory)
    except (RowwiseError, ValueError, OSError) as error:
        raise failed(str(error)) from error


def _load_tensorflow() -> None:
    from server.tensorflow_notices import load_tensorflow, quieten

    quieten()
    load_tensorflow()
