"""The durable model store: which versions exist, what they are built from, which one answers.

The disk is changed first, then the index in memory (``index``); readers never touch the disk (but for ``spec``) and
never wait for a writer, so the event loop may ask at any time. Writers fsync: call them from a thread.

The moments at which something is true, each one rename or one write (see ``durable`` and ``recovery``):
a version exists once its directory is renamed into place; it is built once ``staging`` is ``artifact``; it answers
once ``active.json`` is replaced; it is gone once it is in the trash; a model is gone once ``numbers.json`` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from server.artifact import MANIFEST_FILE
from server.store.blobs import Blobs
from server.store.contents import Contents
from server.store.durable import Disk, encode_json, read_json
from server.store.errors import Conflict, StoreDamaged, StoreFull
from server.store.format import check_format
from server.store.index import ModelIndex, not_built
from server.store.layout import STORE_FORMAT, Layout, VersionLayout, check_name
from server.store.lock import StoreLock
from server.store.pointing import PointedStore
from server.store.quotas import Quotas
from server.store.records import State, VersionRecord
from server.store.recovery import Recovered, record_to_json, recover

__all__ = ["Store"]

_log = logging.getLogger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Store(PointedStore):
    """A directory of models and versions that survives the end of the process at any step.

    ``damage`` has a sentence for each thing that was found broken when the store was opened.
    Errors: every method raises InvalidName for a name that may not be used; those that change something raise
    StoreUnwritable where the disk refuses.
    """

    def __init__(
        self,
        layout: Layout,
        lock: StoreLock,
        recovered: Recovered,
        disk: Disk,
        now: Callable[[], datetime],
        quotas: Quotas,
    ) -> None:
        super().__init__(recovered.models, layout=layout, lock=lock, disk=disk, now=now)
        self._blobs = Blobs(layout.blobs, disk)
        #: Replaced as a whole.
        self.quotas = quotas
        self.damage: tuple[str, ...] = tuple(recovered.damage)

    @classmethod
    def open(
        cls,
        root: Path,
        *,
        disk: Disk | None = None,
        now: Callable[[], datetime] = _utc_now,
        quotas: Quotas | None = None,
        verify: bool = False,
    ) -> Store:
        """Open the store at ``root``, made if missing, and finish or undo what was under way when it was last closed.

        Every file of every artifact must be there with its size; with ``verify`` it is read, and must be what was
        written.
        Errors: StoreLocked if another process has it; NotAStore if the directory holds something else or a store of
            another format; StoreDamaged if ``format.json`` can't be read; StoreUnwritable.
        """
        disk = disk or Disk()
        layout = Layout(root.absolute())
        disk.make_directory(layout.root)
        check_format(layout)
        lock = StoreLock(layout.lock)
        lock.acquire()
        try:
            if not layout.format.exists():
                disk.write_json(layout.format, {"format_version": STORE_FORMAT})
            recovered = recover(layout, disk, verify=verify)
        except BaseException:
            lock.release()
            raise
        for sentence in recovered.damage:
            _log.warning("%s", sentence)
        return cls(layout, lock, recovered, disk, now, quotas or Quotas())

    def close(self) -> None:
        """Let another process open the store. Nothing is lost without it."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What is there, besides what the index says.

    def spec(self, name: str, version: int) -> dict[str, Any]:
        """Read the registration's options. Errors: ModelNotFound; VersionNotFound; StoreDamaged."""
        path = self._paths(name, version).spec
        try:
            return read_json(path)
        except FileNotFoundError as error:
            raise StoreDamaged(path, "it is missing") from error

    # Where things are.

    def upload_dir(self) -> Path:
        """Return the directory for archives on their way in: same file system, emptied when the store is opened."""
        return self._layout.uploads

    def source_dir(self, name: str, version: int) -> Path:
        """Return what the version is built from; gone once built or failed. Errors: ModelNotFound; VersionNotFound."""
        return self._paths(name, version).source

    def staging_dir(self, name: str, version: int) -> Path:
        """Return where the builder writes, up to ``commit``. Errors: ModelNotFound; VersionNotFound."""
        return self._paths(name, version).staging

    def artifact_dir(self, name: str, version: int) -> Path:
        """Return the compiled model. Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built."""
        record = self.record(name, version)
        if record.state is not State.BUILT:
            raise Conflict(not_built(record))
        return self._paths(name, version).artifact

    # What changes.

    def create_version(
        self,
        name: str,
        spec: Mapping[str, Any],
        *,
        source: Mapping[str, Any] | None = None,
        archive: Path | None = None,
    ) -> VersionRecord:
        """Add a version in state BUILDING with the next number, its source, and an empty staging directory.

        ``source`` says what it is built from; ``archive`` is the uploaded file, which moves in, on the store's file
        system. With a source it is there again when the store is opened before it was built.
        A number is never given out twice, also after its version or the whole model was deleted.
        """
        check_name(name)
        if archive is not None:
            # Before the lock is taken: it may have gigabytes.
            self._disk.sync_file(archive)
        with self._writing:
            self._lock.check_writable()
            index = self._models.get(name) or ModelIndex()
            self.quotas.check_new_version(name, index)
            self.quotas.check_bytes(name, self._models, contents=None, more=archive.stat().st_size if archive else 0)
            self._disk.make_directory(self._layout.model(name))
            number = index.last + 1
            self._disk.write_json(self._layout.numbers(name), _numbers(number, index.deleted))
            index.last = number
            self._models[name] = index
            record = VersionRecord(
                model=name,
                version=number,
                state=State.BUILDING,
                created_at=self._timestamp(),
                labels=dict(spec.get("labels") or {}),
                attempts=1,
                awaits_switch=bool(spec.get("activate", True)),
            )
            with self._disk.new_directory(self._layout.version(name, number).path) as new:
                version = VersionLayout(new)
                version.source.mkdir()
                version.staging.mkdir()
                if archive is not None:
                    archive.rename(version.archive)
                if source is not None:
                    version.source_record.write_text(encode_json(source), encoding="utf-8")
                version.spec.write_text(encode_json(spec), encoding="utf-8")
                version.record.write_text(encode_json(record_to_json(record)), encoding="utf-8")
            index.versions[number] = record
            return record

    def source(self, name: str, version: int) -> dict[str, Any]:
        """Read what a version is built from. Errors: ModelNotFound; VersionNotFound; StoreDamaged."""
        path = self._paths(name, version).source_record
        try:
            return read_json(path)
        except FileNotFoundError as error:
            raise StoreDamaged(path, "it is missing") from error

    def archive(self, name: str, version: int) -> Path:
        """Return where a version's upload is. Errors: ModelNotFound; VersionNotFound."""
        return self._paths(name, version).archive

    def commit(self, name: str, version: int) -> VersionRecord:
        """Turn ``staging`` into the artifact: fsynced whole, then renamed. The source is removed.

        Files that another artifact has already are shared with it.
        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't BUILDING; StoreDamaged if the builder left no
            manifest, or anything but files and directories; QuotaExceeded.
        """
        paths = self._paths(name, version)
        if not (paths.staging / MANIFEST_FILE).is_file():
            self._building(name, version)
            raise StoreDamaged(paths.staging, f"the builder left no {MANIFEST_FILE}")
        # Outside of the lock: gigabytes may have to reach the disk, and nobody else writes here.
        contents = self._take_in(paths.staging)
        self._disk.write_json(paths.contents, contents.to_json())
        with self._writing:
            index, record = self._building(name, version)
            self.quotas.check_bytes(name, self._models, contents=contents)
            self._disk.move(paths.staging, paths.artifact)
            index.contents[version] = contents
            record = self._write(paths, index, replace(record, state=State.BUILT))
        self._disk.discard(paths.source)
        return record

    def _take_in(self, directory: Path, *, is_ours: bool = False) -> Contents:
        """Return what is in a directory, with its files shared, and on the disk."""
        contents = self._blobs.take_in(directory, is_ours=is_ours)
        self._disk.sync_tree(directory)
        self._blobs.keep(directory, contents)
        return contents

    def record_contents(self, name: str, version: int) -> None:
        """Take up the files of an artifact that a release before this one built, as if it were built now.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built; StoreDamaged; StoreUnwritable.
        """
        if self.contents(name, version) is not None:
            return
        self._lock.check_writable()
        paths = self._paths(name, version)
        contents = self._take_in(paths.artifact, is_ours=True)
        with self._writing:
            index = self._index(name)
            self._known(index, name, version)
            self._disk.write_json(paths.contents, contents.to_json())
            index.contents[version] = contents

    def fail(self, name: str, version: int, reason: str) -> VersionRecord:
        """Say why a version was not built. What was staged and its source are removed.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't BUILDING.
        """
        paths = self._paths(name, version)
        with self._writing:
            index, record = self._building(name, version)
            failed = replace(record, state=State.FAILED, reason=reason)
            try:
                record = self._write(paths, index, failed)
            except StoreFull:
                # What it leaves behind may be what fills the disk.
                self._discard_all(paths)
                record = self._write(paths, index, failed)
        self._discard_all(paths)
        return record

    def interrupt(self, name: str, version: int) -> None:
        """Note that a build is stopped in good order, so that it is begun again when the store is opened.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't BUILDING.
        """
        paths = self._paths(name, version)
        with self._writing:
            index, record = self._building(name, version)
            self._write(paths, index, replace(record, attempts=0))

    def delete(self, name: str, version: int | None = None) -> None:
        """Delete one version, or the model with all of its versions at one moment.

        Whoever builds or serves them must have stopped. Errors: ModelNotFound; VersionNotFound; Conflict for one
            version that is the active one, or that a label leads to which was set.
        """
        with self._writing:
            index = self._index(name)
            self._lock.check_writable()
            if version is None:
                removed = list(index.versions)
                files = [digest for each in removed for digest in _digests(index, each)]
                self._disk.write_json(self._layout.numbers(name), _numbers(index.last, index.last))
                self._models[name] = ModelIndex(last=index.last, deleted=index.last)
                self._disk.remove_file(self._layout.active(name))
                self._disk.remove_file(self._layout.labels(name))
                for number in removed:
                    self._disk.discard(self._layout.version(name, number).path)
                self._blobs.sweep(files)
                return
            self._known(index, name, version)
            if index.active == version:
                raise Conflict(
                    f"version {version} of model {name!r} is the active one: activate another version first, "
                    "or delete the model"
                )
            held = sorted(label for label, number in index.labels.items() if number == version)
            if held:
                raise Conflict(
                    f"the label {held[0]!r} leads to version {version} of model {name!r}: move or remove it first"
                )
            trash = self._layout.trash / f"{name}-{version}"
            self._disk.move(self._layout.version(name, version).path, trash)
            files = _digests(index, version)
            index.versions = {number: record for number, record in index.versions.items() if number != version}
            index.contents.pop(version, None)
            if index.unloaded == version:
                index.unloaded = None
        self._disk.discard(trash)
        self._blobs.sweep(files)

    def sweep(self) -> int:
        """Delete files that no version has, and return the bytes that were given back. Errors: StoreUnwritable."""
        self._lock.check_writable()
        return self._blobs.sweep()

    def _building(self, name: str, version: int) -> tuple[ModelIndex, VersionRecord]:
        index = self._index(name)
        record = self._known(index, name, version)
        if record.state is not State.BUILDING:
            raise Conflict(f"version {version} of model {name!r} is {record.state}, not {State.BUILDING}")
        return index, record

    def _discard_all(self, paths: VersionLayout) -> None:
        for leftover in (paths.source, paths.staging, paths.artifact, paths.contents):
            if leftover.exists():
                self._disk.discard(leftover)


def _digests(index: ModelIndex, version: int) -> list[str]:
    contents = index.contents.get(version)
    return [] if contents is None else [file.sha256 for file in contents.files.values()]


def _numbers(last: int, deleted: int) -> dict[str, int]:
    return {"last": last, "deleted": deleted}
