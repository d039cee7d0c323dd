"""The part of a store that versions come by: what a registration becomes, and artifacts that were built elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from server.artifact import MANIFEST_FILE
from server.store.blobs import Blobs
from server.store.contents import Contents
from server.store.durable import Disk, encode_json
from server.store.errors import Conflict, StoreDamaged, StoreFull
from server.store.index import ModelIndex
from server.store.layout import Layout, VersionLayout, check_name
from server.store.lock import StoreLock
from server.store.pointing import PointedStore
from server.store.quotas import Quotas
from server.store.records import NO_INTAKE, Intake, State, VersionRecord
from server.store.recovery import record_to_json

__all__ = ["GrowingStore", "numbers_to_json"]


class GrowingStore(PointedStore):
    """Versions from their registration to their artifact. ``quotas`` are replaced as a whole."""

    def __init__(
        self,
        models: dict[str, ModelIndex],
        *,
        layout: Layout,
        lock: StoreLock,
        disk: Disk,
        now: Callable[[], datetime],
        quotas: Quotas,
    ) -> None:
        super().__init__(models, layout=layout, lock=lock, disk=disk, now=now)
        self._blobs = Blobs(layout.blobs, disk)
        self.quotas = quotas

    def check_new(self, name: str, *, n_bytes: int) -> None:
        """Raise what ``create_version`` would for an archive of ``n_bytes``, as far as that is known before.

        Errors: InvalidName; QuotaExceeded; StoreUnwritable.
        """
        check_name(name)
        self._lock.check_writable()
        self.quotas.check_new_version(name, self._models.get(name) or ModelIndex())
        self.quotas.check_bytes(name, self._models, contents=None, more=n_bytes)

    def create_version(
        self,
        name: str,
        spec: Mapping[str, Any],
        *,
        source: Mapping[str, Any] | None = None,
        archive: Path | None = None,
        intake: Intake = NO_INTAKE,
        number: int | None = None,
    ) -> VersionRecord:
        """Add a version in state BUILDING with the next number, its source, and an empty staging directory.

        ``number`` is given where versions are numbered elsewhere.

        ``source`` says what it is built from; ``archive`` is the uploaded file, which moves in, on the store's file
        system. With a source it is there again when the store is opened before it was built. ``intake`` is kept.
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
            number = self._next_number(name, index, number)
            record = VersionRecord(
                model=name,
                version=number,
                state=State.BUILDING,
                created_at=self._timestamp(),
                labels=dict(spec.get("labels") or {}),
                attempts=1,
                awaits_switch=bool(spec.get("activate", True)),
                intake=intake,
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

    def add(
        self,
        name: str,
        spec: Mapping[str, Any],
        artifact: Path,
        *,
        created_at: str = "",
        expected: Contents | None = None,
        number: int | None = None,
        is_ours: bool = False,
    ) -> VersionRecord:
        """Add a version that is built already: ``artifact``, on the store's file system, moves in at one moment.

        ``expected``: what it must consist of. ``number`` is given where versions are numbered elsewhere. ``is_ours``:
        it is linked to files of this store, and nobody else can write to it.
        Errors: Conflict for a number that is taken; StoreDamaged if it is not what is expected, has no manifest, or
            anything but files and directories; QuotaExceeded; StoreUnwritable.
        """
        check_name(name)
        self._lock.check_writable()
        contents = self._take_in(name, artifact, is_ours=is_ours)
        if MANIFEST_FILE not in contents.files or expected not in (None, contents):
            raise StoreDamaged(artifact, "it is not the artifact that it is said to be")
        with self._writing:
            self._lock.check_writable()
            index = self._models.get(name) or ModelIndex()
            self.quotas.check_new_version(name, index)
            self.quotas.check_bytes(name, self._models, contents=contents)
            if number is not None and (number in index.versions or number <= index.deleted):
                raise Conflict(f"version {number} of model {name!r} is there already, or was")
            number = self._next_number(name, index, number)
            record = VersionRecord(
                model=name,
                version=number,
                state=State.BUILT,
                created_at=created_at or self._timestamp(),
                labels=dict(spec.get("labels") or {}),
            )
            with self._disk.new_directory(self._layout.version(name, number).path) as new:
                version = VersionLayout(new)
                artifact.rename(version.artifact)
                version.contents.write_text(encode_json(contents.to_json()), encoding="utf-8")
                version.spec.write_text(encode_json(spec), encoding="utf-8")
                version.record.write_text(encode_json(record_to_json(record)), encoding="utf-8")
            index.contents[number] = contents
            index.versions[number] = record
            return index.stamped(record)

    def check_room(self, name: str, contents: Contents) -> None:
        """Errors: QuotaExceeded where an artifact would be too much; InvalidName; StoreUnwritable."""
        check_name(name)
        self._lock.check_writable()
        with self._writing:
            self.quotas.check_new_version(name, self._models.get(name) or ModelIndex())
            self.quotas.check_bytes(name, self._models, contents=contents)

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
        contents = self._take_in(name, paths.staging)
        self._disk.write_json(paths.contents, contents.to_json())
        with self._writing:
            index, record = self._building(name, version)
            self.quotas.check_bytes(name, self._models, contents=contents)
            # From here on, so that what can't be finished is known to whoever says that it failed.
            index.contents[version] = contents
            self._disk.move(paths.staging, paths.artifact)
            record = self._write(paths, index, replace(record, state=State.BUILT))
        self._disk.discard(paths.source)
        return record

    def _take_in(self, name: str, directory: Path, *, is_ours: bool = False) -> Contents:
        """Return what is in a directory, with its files shared, and on the disk. Errors: also QuotaExceeded."""
        contents = self._blobs.take_in(directory, is_ours=is_ours)
        if not is_ours:
            # Before they are named: what nobody may have must not stay.
            with self._writing:
                self.quotas.check_bytes(name, self._models, contents=contents)
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
        contents = self._take_in(name, paths.artifact, is_ours=True)
        with self._writing:
            index = self._index(name)
            index.known(name, version)
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
            files = index.digests(version)
            index.contents.pop(version, None)
        self._discard_all(paths)
        self._blobs.sweep(files)
        return record

    def interrupt(self, name: str, version: int) -> None:
        """Note that a build is stopped in good order, so that it is begun again when the store is opened.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't BUILDING.
        """
        paths = self._paths(name, version)
        with self._writing:
            index, record = self._building(name, version)
            self._write(paths, index, replace(record, attempts=0))

    def _next_number(self, name: str, index: ModelIndex, number: int | None = None) -> int:
        """Give out a version number, durably."""
        number = index.last + 1 if number is None else number
        self._disk.make_directory(self._layout.model(name))
        self._disk.write_json(self._layout.numbers(name), numbers_to_json(max(number, index.last), index.deleted))
        index.last = max(number, index.last)
        self._models[name] = index
        return number

    def _building(self, name: str, version: int) -> tuple[ModelIndex, VersionRecord]:
        index = self._index(name)
        return index, index.check_building(name, version)

    def _discard_all(self, paths: VersionLayout) -> None:
        for leftover in (paths.source, paths.staging, paths.artifact, paths.contents):
            if leftover.exists():
                self._disk.discard(leftover)


def numbers_to_json(last: int, deleted: int) -> dict[str, int]:
    """Return what ``numbers.json`` holds."""
    return {"last": last, "deleted": deleted}
