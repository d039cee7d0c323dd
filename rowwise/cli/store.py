"""``rowwise store``: look at a store, check it, clear it up, and carry versions from one to another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from rowwise.cli.exit_codes import failed
from rowwise.cli.options import AsJson

if TYPE_CHECKING:
    from server.shared_store import Bucket, BucketView
    from server.store import StoreView, VersionCheck

__all__ = ["store"]

store = typer.Typer(
    name="store",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Look at a model store, check it, clear it up, and carry versions from one to another.

    A store is what [bold]rowwise serve --store[/bold] keeps its models in: a directory, or a bucket that servers share.
    Looking, checking and exporting leave it as it is, and work beside running servers. Clearing up and importing need a
    directory for themselves, and work in a bucket beside its servers.
    """,
)

Location = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="ROWWISE_STORE",
        metavar="DIR",
        help="The store's directory, or its bucket s3://BUCKET/PREFIX.",
    ),
]
_STORE = "rowwise-store"


@store.command("ls")
def list_versions(
    name: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="A model; without it, all.")] = None,
    *,
    location: Location = _STORE,
    as_json: AsJson = False,
) -> None:
    """List models, versions, labels and what they take on the disk.

    [bold]Examples[/bold]

        rowwise store ls

        rowwise store ls ranker --store /var/lib/rowwise --json | jq '.versions[].bytes'

        rowwise store ls --store s3://models/team
    """
    with _told():
        from server.store.quotas import stored_bytes

        view = _view(location)
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
    location: Location = _STORE,
    quick: Annotated[bool, typer.Option("--quick", help="Compare sizes only; nothing is read.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read every file of every version and compare it with what was built.

    Takes a second for a gigabyte. A damaged version is not served once the server is started again with
    [bold]--verify-store[/bold]; register it again, or import it from where it is sound.

    [bold]Examples[/bold]

        rowwise store verify

        rowwise store verify ranker --store /var/lib/rowwise --json

        rowwise store verify --store s3://models/team

    Exit codes: 0 all is sound; 1 something is damaged, or there is no store.
    """
    with _told(), _busy("reading every file" if not quick else "comparing sizes"):
        view = _view(location)
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
    location: Location = _STORE,
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete what nobody needs: with --keep old versions, and always files that no version has any more.

    A server does this by itself while it runs ([bold]keep_versions[/bold]); this command needs a directory for itself.
    In a bucket only files go, that no version has had for a day, and its servers may be running. It is safe to
    interrupt.

    [bold]Examples[/bold]

        rowwise store gc --keep 3 --dry-run

        rowwise store gc --keep 3 --store /var/lib/rowwise

        rowwise store gc --store s3://models/team
    """
    if _is_bucket(location):
        if keep is not None:
            raise typer.BadParameter("the servers of a bucket delete its versions (keep_versions)", param_hint="--keep")
        _sweep(location, dry_run=dry_run, as_json=as_json)
        return
    with _told():
        from server.store import Store

        with Store.open(Path(location)) as opened:
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
    location: Location = _STORE,
    as_json: AsJson = False,
) -> None:
    """Write one version into a file: its artifact, options and labels, with a hash of everything.

    [bold]Examples[/bold]

        rowwise store export ranker ranker.tar

        rowwise store export ranker:3 ranker-3.tar --store /var/lib/rowwise

        rowwise store export ranker ranker.tar --store s3://models/team

    For a plain SavedModel, which TensorFlow loads by itself, see [bold]rowwise export[/bold].
    """
    with _told(), _busy("writing the file"):
        from server.store import export_version

        name, version = _model_and_version(which)
        view = _view(location)
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
    location: Location = _STORE,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="MODEL", help="Under another name than its own.", show_default=False),
    ] = None,
    activate: Annotated[
        bool, typer.Option("--activate", help="Let it answer: when the server is started; in a bucket at once.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add the version that a file holds, under the next number of its model.

    Every byte is compared with what the file announces, and nothing is kept of one that differs. What it was built for,
    the graph included, is checked again by the server before it is loaded.

    [bold]Examples[/bold]

        rowwise store import ranker.tar

        rowwise store import ranker.tar --as ranker-next --activate --store /var/lib/rowwise

        rowwise store import ranker.tar --store s3://models/team
    """
    with _told(), _busy("reading the file"):
        if _is_bucket(location):
            from server.shared_store import import_into_bucket

            record = import_into_bucket(_bucket(location), file, name=name, activate=activate)
        else:
            from server.store import Store, import_version

            with Store.open(Path(location)) as opened:
                record = import_version(opened, file, name=name)
                if activate:
                    record = opened.activate(record.model, record.version, by="import")
    if as_json:
        typer.echo(json.dumps(record.to_json(), indent=1))
    else:
        typer.echo(f"{record.model} version {record.version} is {record.state}{' and active' if activate else ''}")


def _is_bucket(location: str) -> bool:
    return location.startswith("s3://")


def _bucket(location: str) -> Bucket:
    from server.shared_store import open_bucket

    try:
        return open_bucket(location)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--store") from error


def _view(location: str) -> StoreView | BucketView:
    """Return the store at a location, to be read."""
    if _is_bucket(location):
        from server.shared_store import BucketView

        return BucketView(_bucket(location))
    from server.store import StoreView

    return StoreView(Path(location))


def _sweep(url: str, *, dry_run: bool, as_json: bool) -> None:
    with _told(), _busy("looking for what nobody needs"):
        from server.shared_store import sweep_bucket

        n_files, n_bytes = sweep_bucket(_bucket(url), dry_run=dry_run)
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
    """End the command with exit code 1 and a sentence where the store refuses, or there can be none."""
    from server.errors import RowwiseError

    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise failed("a store in a bucket needs pip install 'rowwise[s3]'") from error
    except (RowwiseError, OSError) as error:
        raise failed(str(error)) from error


def _busy(what: str) -> AbstractContextManager[object]:
    """Say on a terminal that something takes its time; elsewhere nothing is written."""
    return Console(stderr=True).status(what)
