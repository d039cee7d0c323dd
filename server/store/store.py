"""The durable model store: which versions exist, what they are built from, which one answers.

The disk is changed first, then the index in memory; readers never touch the disk (but for ``spec``) and never
wait for a writer, so the event loop may ask at any time. Writers fsync: call them from a thread.

The moments at which something is true, each one rename or one write (see ``durable`` and ``recovery``):
a version exists once its directory is renamed into place; it is built once ``staging`` is ``artifact``; it answers
once ``active.json`` is replaced; it is gone once it is in the trash; a model is gone once ``numbers.json`` says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from server.artifact import MANIFEST_FILE
from server.store.durable import Disk, encode_json, read_json
from server.store.errors import (
    Conflict,
    ModelNotFound,
    StoreDamaged,
    StoreFull,
    StoreUnwritable,
    VersionNotFound,
)
from server.store.format import check_format
from server.store.layout import STORE_FORMAT, Layout, VersionLayout, check_name
from server.store.lock import StoreLock
from server.store.records import State, VersionRecord
from server.store.recovery import ModelIndex, Recovered, record_to_json, recover

__all__ = ["Store"]

_log = logging.getLogger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Store:
    """A directory of models and versions that survives the end of the process at any step.

    ``damage`` has a sentence for each thing that was found broken when the store was opened.
    Errors: every method raises InvalidName for a name that may not be used; those that change something raise
    StoreUnwritable where the disk refuses.
    """

    def __init__(
        self, layout: Layout, lock: StoreLock, recovered: Recovered, disk: Disk, now: Callable[[], datetime]
    ) -> None:
        self._layout = layout
        self._lock = lock
        self._disk = disk
        self._now = now
        #: Models by name, also those whose versions are all deleted. Replaced or added to under ``_writing`` only.
        self._models: dict[str, ModelIndex] = recovered.models
        self._writing = threading.Lock()
        self.damage: tuple[str, ...] = tuple(recovered.damage)

    @classmethod
    def open(cls, root: Path, *, disk: Disk | None = None, now: Callable[[], datetime] = _utc_now) -> Store:
        """Open the store at ``root``, made if missing, and finish or undo what was under way when it was last closed.

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
            recovered = recover(layout, disk)
        except BaseException:
            lock.release()
            raise
        for sentence in recovered.damage:
            _log.warning("%s", sentence)
        return cls(layout, lock, recovered, disk, now)

    def close(self) -> None:
        """Let another process open the store. Nothing is lost without it."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What is there.

    def models(self) -> list[str]:
        """Return the names of models that have a version, sorted."""
        return sorted(name for name, index in list(self._models.items()) if index.versions)

    def versions(self, name: str) -> list[VersionRecord]:
        """Return a model's versions, oldest first. Errors: ModelNotFound."""
        index = self._index(name)
        return [_stamped(record, index) for record in list(index.versions.values())]

    def record(self, name: str, version: int) -> VersionRecord:
        """Return one version. Errors: ModelNotFound; VersionNotFound."""
        index = self._index(name)
        return _stamped(_version(index, name, version), index)

    def active(self, name: str) -> int | None:
        """Return the version that answers where a request names none. Errors: ModelNotFound."""
        return self._index(name).active

    def is_unloaded(self, name: str) -> bool:
        """Return whether no version answers because the model was unloaded. Errors: ModelNotFound."""
        return self._index(name).is_unloaded

    def loadable(self, name: str) -> int | None:
        """Return the version that loading the model means: the one that answers, or did, else the newest built one.

        Errors: ModelNotFound.
        """
        index = self._index(name)
        known = index.unloaded if index.active is None else index.active
        built = [number for number, record in index.versions.items() if record.state is State.BUILT]
        return known if known in built else max(built, default=None)

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
            raise Conflict(_not_built(record))
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
            self._disk.make_directory(self._layout.model(name))
            number = index.last + 1
            self._disk.write_json(self._layout.numbers(name), _numbers(number, index.deleted))
            index.last = number
            self._models[name] = index
            record = VersionRecord(
                model=name,
                version=number,
                state=State.BUILDING,
                created_at=self._now().astimezone(UTC).isoformat(timespec="seconds"),
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

    @property
    def is_read_only(self) -> bool:
        """True where the directory can't be written: what is there can be read, and nothing changed."""
        return self._lock.is_read_only

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

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't BUILDING; StoreDamaged if the builder left no
            manifest, or anything but files and directories.
        """
        paths = self._paths(name, version)
        if not (paths.staging / MANIFEST_FILE).is_file():
            self._building(name, version)
            raise StoreDamaged(paths.staging, f"the builder left no {MANIFEST_FILE}")
        # Outside of the lock: gigabytes may have to reach the disk, and nobody else writes here.
        self._disk.sync_tree(paths.staging)
        with self._writing:
            index, record = self._building(name, version)
            self._disk.move(paths.staging, paths.artifact)
            record = self._write(paths, index, replace(record, state=State.BUILT))
        self._disk.discard(paths.source)
        return record

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

    def activate(self, name: str, version: int) -> VersionRecord:
        """Make a built version the one that answers. Errors: ModelNotFound; VersionNotFound; Conflict if not BUILT."""
        with self._writing:
            index = self._index(name)
            record = _version(index, name, version)
            if record.state is not State.BUILT:
                raise Conflict(_not_built(record))
            if index.active != version:
                self._lock.check_writable()
                self._disk.write_json(self._layout.active(name), {"version": version})
                index.active, index.is_unloaded, index.unloaded = version, False, None
            for number, waiting in list(index.versions.items()):
                if waiting.awaits_switch and number <= version:
                    # Where that fails, the next opening of the store does it.
                    with suppress(StoreUnwritable):
                        self._write(self._paths(name, number), index, replace(waiting, awaits_switch=False))
            return _stamped(index.versions[version], index)

    def deactivate(self, name: str) -> None:
        """Let no version of the model answer, until one is activated; which one did is kept. Errors: ModelNotFound."""
        with self._writing:
            index = self._index(name)
            if index.is_unloaded:
                return
            self._lock.check_writable()
            self._disk.write_json(self._layout.active(name), {"version": index.active or 0, "unloaded": True})
            index.active, index.is_unloaded, index.unloaded = None, True, index.active

    def delete(self, name: str, version: int | None = None) -> None:
        """Delete one version, or the model with all of its versions at one moment.

        Whoever builds or serves them must have stopped. Errors: ModelNotFound; VersionNotFound; Conflict for one
            version that is the active one.
        """
        with self._writing:
            index = self._index(name)
            self._lock.check_writable()
            if version is None:
                removed = list(index.versions)
                self._disk.write_json(self._layout.numbers(name), _numbers(index.last, index.last))
                index.versions, index.active, index.deleted = {}, None, index.last
                index.is_unloaded, index.unloaded = False, None
                self._disk.remove_file(self._layout.active(name))
                for number in removed:
                    self._disk.discard(self._layout.version(name, number).path)
                return
            _version(index, name, version)
            if index.active == version:
                raise Conflict(
                    f"version {version} of model {name!r} is the active one: activate another version first, "
                    "or delete the model"
                )
            trash = self._layout.trash / f"{name}-{version}"
            self._disk.move(self._layout.version(name, version).path, trash)
            index.versions = {number: record for number, record in index.versions.items() if number != version}
            if index.unloaded == version:
                index.unloaded = None
        self._disk.discard(trash)

    def _index(self, name: str) -> ModelIndex:
        index = self._models.get(check_name(name))
        if index is None or not index.versions:
            raise ModelNotFound(name)
        return index

    def _paths(self, name: str, version: int) -> VersionLayout:
        _version(self._index(name), name, version)
        return self._layout.version(name, version)

    def _building(self, name: str, version: int) -> tuple[ModelIndex, VersionRecord]:
        index = self._index(name)
        record = _version(index, name, version)
        if record.state is not State.BUILDING:
            raise Conflict(f"version {version} of model {name!r} is {record.state}, not {State.BUILDING}")
        return index, record

    def _discard_all(self, paths: VersionLayout) -> None:
        for leftover in (paths.source, paths.staging, paths.artifact):
            if leftover.exists():
                self._disk.discard(leftover)

    def _write(self, paths: VersionLayout, index: ModelIndex, record: VersionRecord) -> VersionRecord:
        self._lock.check_writable()
        self._disk.write_json(paths.record, record_to_json(record))
        index.versions[record.version] = record
        return _stamped(record, index)


def _stamped(record: VersionRecord, index: ModelIndex) -> VersionRecord:
    return replace(record, active=index.active == record.version)


def _version(index: ModelIndex, name: str, version: int) -> VersionRecord:
    try:
        return index.versions[version]
    except KeyError:
        raise VersionNotFound(name, version) from None


def _not_built(record: VersionRecord) -> str:
    sentence = f"version {record.version} of model {record.model!r} is {record.state}, not {State.BUILT}"
    return f"{sentence}: {record.reason}" if record.reason else sentence


def _numbers(last: int, deleted: int) -> dict[str, int]:
    return {"last": last, "deleted": deleted}
