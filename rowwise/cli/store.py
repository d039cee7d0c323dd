"""``rowwise store``: look at a store, check it, clear it up, and carry versions from one to another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from rowwise.cli.options import AsJson

if TYPE_CHECKING:
    from server.store import VersionCheck

__all__ = ["store"]

store = typer.Typer(
    name="store",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Look at a model store on this machine, check it, clear it up, and carry versions from one to another.

    A store is the directory that [bold]rowwise serve --store[/bold] keeps its models in. Looking, checking and
    exporting leave it as it is, and work beside a running server; clearing up and importing need it for themselves.
    """,
)

Directory = Annotated[
    Path,
    typer.Option("--store", envvar="ROWWISE_STORE", metavar="DIR", help="The store's directory."),
]
_STORE = Path("rowwise-store")


@store.command("ls")
def list_versions(
    name: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="A model; without it, all.")] = None,
    *,
    directory: Directory = _STORE,
    as_json: AsJson = False,
) -> None:
    """List models, versions, labels and what they take on the disk.

    [bold]Examples[/bold]

        rowwise store ls

        rowwise store ls ranker --store /var/lib/rowwise --json | jq '.versions[].bytes'
    """
    with _told():
        from server.store import StoreView
        from server.store.quotas import stored_bytes

        view = StoreView(directory)
        checks = view.checks(read=False, only=name)
        total = stored_bytes([check.contents for check in checks if check.contents is not None])
    if as_json:
        typer.echo(json.dumps({"versions": [check.to_json() for check in checks], "bytes": total}, indent=1))
        return
    table = Table("model", "version", "state", "active", "labels", "bytes", "created", box=None, header_style="bold")
    for column in (1, 5):
        table.columns[column].justify = "right"
    for check in checks:
        record = check.record
        table.add_row(
            record.model,
            str(record.version),
            str(record.state),
            "yes" if record.active else "",
            " ".join(sorted(record.labels)),
            "" if check.contents is None else f"{check.contents.n_bytes:,}",
            record.created_at,
        )
    Console().print(table)
    typer.echo(f"{len(checks)} versions, {total:,} bytes on the disk (what versions share counts once)")


@store.command()
def verify(
    name: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="A model; without it, all.")] = None,
    *,
    directory: Directory = _STORE,
    quick: Annotated[bool, typer.Option("--quick", help="Compare sizes only; nothing is read.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read every file of every version and compare it with what was built.

    Takes a second for a gigabyte. A damaged version is not served once the server is started again with
    [bold]--verify-store[/bold]; register it again, or import it from where it is sound.

    [bold]Examples[/bold]

        rowwise store verify

        rowwise store verify ranker --store /var/lib/rowwise --json

    Exit codes: 0 all is sound; 1 something is damaged, or the directory is no store.
    """
    with _told():
        from server.store import StoreView

        view = StoreView(directory)
        checks = view.checks(read=not quick, only=name)
    damaged = [check for check in checks if check.faults]
    # Sentences on one version are with that version.
    told = {fault for check in checks for fault in check.faults}
    others = [] if name is not None else [sentence for sentence in view.damage if sentence not in told]
    if as_json:
        versions = [check.to_json() for check in checks]
        typer.echo(json.dumps({"sound": not damaged and not others, "versions": versions, "other": others}, indent=1))
    else:
        for check in checks:
            _print_check(check)
        for sentence in others:
            typer.echo(f"DAMAGED  {sentence}")
        n_unknown = sum(check.contents is None and str(check.record.state) == "BUILT" for check in checks)
        typer.echo(f"{len(checks)} versions, {len(damaged) + len(others)} damaged")
        if n_unknown:
            typer.echo(f"{n_unknown} are without checksums, from before there were any: starting the server makes them")
    if damaged or others:
        raise typer.Exit(1)


@store.command()
def gc(
    *,
    directory: Directory = _STORE,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            min=1,
            metavar="N",
            help="Delete versions too: keep the newest N that are built, as many that failed, and all that are active, "
            "labelled or on their way. Without it: only what no version has.",
            show_default=False,
        ),
    ] = None,
    bucket: Annotated[
        str | None,
        typer.Option(
            "--bucket",
            metavar="URL",
            help="Clear up a bucket that servers share, s3://BUCKET/PREFIX: files that no version has had for a day. "
            "Its servers may be running.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete what nobody needs: with --keep old versions, and always files that no version has any more.

    A server does this by itself while it runs ([bold]keep_versions[/bold]); this command needs the store for itself.
    It is safe to interrupt.

    [bold]Examples[/bold]

        rowwise store gc --keep 3 --dry-run

        rowwise store gc --keep 3 --store /var/lib/rowwise

        rowwise store gc --bucket s3://models/team
    """
    if bucket is not None:
        if keep is not None:
            raise typer.BadParameter("the servers of a bucket delete its versions (keep_versions)", param_hint="--keep")
        _sweep(bucket, dry_run=dry_run, as_json=as_json)
        return
    with _told():
        from server.store import Store

        with Store.open(directory) as opened:
            going = []
            if keep is not None:
                going = [(name, number) for name in opened.models() for number in opened.collectable(name, keep=keep)]
            freed = 0
            if not dry_run:
                before = opened.bytes_on_disk()
                for name, number in going:
                    opened.delete(name, number)
                freed = before - opened.bytes_on_disk() + opened.sweep()
    if as_json:
        versions = [{"model": name, "version": number} for name, number in going]
        typer.echo(json.dumps({"deleted": [] if dry_run else versions, "would_go": versions, "bytes": freed}, indent=1))
        return
    for name, number in going:
        typer.echo(f"{'would delete' if dry_run else 'deleted'} version {number} of {name}")
    typer.echo(f"{len(going)} versions{' would go' if dry_run else f', {freed:,} bytes given back'}")


@store.command("export")
def export_command(
    which: Annotated[
        str, typer.Argument(metavar="MODEL[:VERSION]", help="A model, and a version of it; without, the active one.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE.tar", help="A new file.")],
    *,
    directory: Directory = _STORE,
    as_json: AsJson = False,
) -> None:
    """Write one version into a file: its artifact, options and labels, with a hash of everything.

    [bold]Examples[/bold]

        rowwise store export ranker ranker.tar

        rowwise store export ranker:3 ranker-3.tar --store /var/lib/rowwise

    For a plain SavedModel, which TensorFlow loads by itself, see [bold]rowwise export[/bold].
    """
    with _told():
        from server.store import StoreView, export_version

        name, version = _model_and_version(which)
        view = StoreView(directory)
        announced = export_version(view, name, view.chosen(name, version), file)
    sha256 = announced.contents.sha256
    if as_json:
        told = {"model": name, "version": announced.version, "file": str(file), "sha256": sha256}
        typer.echo(json.dumps(told, indent=1))
    else:
        typer.echo(f"wrote version {announced.version} of {name} to {file} (contents {sha256})")


@store.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.tar", help="What `rowwise store export` wrote.")],
    *,
    directory: Directory = _STORE,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="MODEL", help="Under another name than its own.", show_default=False),
    ] = None,
    activate: Annotated[bool, typer.Option("--activate", help="Let it answer when the server is started.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add the version that a file holds, under the next number of its model.

    Every byte is compared with what the file announces, and nothing is kept of one that differs. What it was built for,
    the graph included, is checked again by the server before it is loaded.

    [bold]Examples[/bold]

        rowwise store import ranker.tar

        rowwise store import ranker.tar --as ranker-next --activate --store /var/lib/rowwise
    """
    with _told():
        from server.store import Store, import_version

        with Store.open(directory) as opened:
            record = import_version(opened, file, name=name)
            if activate:
                record = opened.activate(record.model, record.version, by="import")
    if as_json:
        typer.echo(json.dumps(record.to_json(), indent=1))
    else:
        typer.echo(f"{record.model} version {record.version} is {record.state}{' and active' if activate else ''}")


def _sweep(url: str, *, dry_run: bool, as_json: bool) -> None:
    with _told():
        try:
            from server.shared_store import open_bucket, sweep_bucket

            n_files, n_bytes = sweep_bucket(open_bucket(url), dry_run=dry_run)
        except (ModuleNotFoundError, ValueError) as error:
            typer.echo(f"error: {error}; buckets need pip install 'rowwise[s3]'", err=True)
            raise typer.Exit(1) from error
    if as_json:
        typer.echo(json.dumps({"files": n_files, "bytes": n_bytes, "dry_run": dry_run}, indent=1))
    else:
        typer.echo(f"{n_files} files, {n_bytes:,} bytes {'would go' if dry_run else 'given back'}")


def _print_check(check: VersionCheck) -> None:
    record = check.record
    which = f"{record.model} version {record.version}"
    if check.faults:
        for fault in check.faults:
            typer.echo(f"DAMAGED  {which}: {fault}")
    elif check.contents is not None:
        typer.echo(f"sound    {which}: {len(check.contents.files)} files, {check.contents.n_bytes:,} bytes")
    else:
        typer.echo(f"-        {which}: {record.state}")


def _model_and_version(which: str) -> tuple[str, int | None]:
    name, colon, number = which.partition(":")
    if not colon:
        return name, None
    if not number.isascii() or not number.isdigit() or int(number) < 1:
        raise typer.BadParameter(f"{number!r} is no version: versions are 1, 2, 3, ...", param_hint="MODEL[:VERSION]")
    return name, int(number)


@contextmanager
def _told() -> Iterator[None]:
    """End the command with exit code 1 and a sentence where the store refuses."""
    from server.errors import RowwiseError

    try:
        yield
    except (RowwiseError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
