"""The durable model store: which versions exist, what they are built from, which one answers.

The disk is changed first, then the index in memory (``index``); readers never touch the disk (but for ``spec``) and
never wait for a writer, so the event loop may ask at any time. Writers fsync: call them from a thread.

The moments at which something is true, each one rename or one write (see ``durable`` and ``recovery``):
a version exists once its directory is renamed into place; it is built once ``staging`` is ``artifact``; it answers
once ``active.json`` is replaced; it is gone once it is in the trash; a model is gone once ``numbers.json`` says so.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from server.store.closing import Closing
from server.store.collection import collectable
from server.store.contents import Contents, FileDigest
from server.store.durable import Disk, read_json
from server.store.errors import StoreDamaged, unwritable
from server.store.format import check_format
from server.store.growing import GrowingStore, numbers_to_json
from server.store.index import ModelIndex
from server.store.layout import STORE_FORMAT, Layout, VersionLayout
from server.store.lock import StoreLock
from server.store.quotas import Quotas, stored_bytes
from server.store.records import State, VersionRecord
from server.store.recovery import Recovered, recover

__all__ = ["Store"]

_log = logging.getLogger(__name__)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Store(GrowingStore, Closing):
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
        super().__init__(recovered.models, layout=layout, lock=lock, disk=disk, now=now, quotas=quotas)
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

    # What is there, besides what the index says.

    def spec(self, name: str, version: int) -> dict[str, Any]:
        """Read the registration's options. Errors: ModelNotFound; VersionNotFound; StoreDamaged."""
        path = self._paths(name, version).spec
        try:
            return read_json(path)
        except FileNotFoundError as error:
            raise StoreDamaged(path, "it is missing") from error

    # Where things are.

    def partial_upload_dir(self) -> Path:
        """Return where archives lie that come in pieces: same file system, kept over restarts, made when needed."""
        return self._layout.partial_uploads

    def upload_dir(self) -> Path:
        """Return the directory for archives on their way in: same file system, emptied when the store is opened."""
        return self._layout.uploads

    def scratch_dir(self) -> Path:
        """Make a directory for an artifact on its way in, among the uploads. Errors: StoreUnwritable."""
        self._lock.check_writable()
        try:
            return Path(tempfile.mkdtemp(prefix="import-", dir=self._layout.uploads))
        except OSError as error:
            raise unwritable(repr(str(self._layout.uploads)), error) from error

    def source_dir(self, name: str, version: int) -> Path:
        """Return what the version is built from; gone once built or failed. Errors: ModelNotFound; VersionNotFound."""
        return self._paths(name, version).source

    def staging_dir(self, name: str, version: int) -> Path:
        """Return where the builder writes, up to ``commit``. Errors: ModelNotFound; VersionNotFound."""
        return self._paths(name, version).staging

    def artifact_dir(self, name: str, version: int) -> Path:
        """Return the compiled model. Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built."""
        self._index(name).check_built(name, version)
        return self._paths(name, version).artifact

    # What changes.

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
                files = [digest for each in removed for digest in index.digests(each)]
                self._disk.write_json(self._layout.numbers(name), numbers_to_json(index.last, index.last))
                self._models[name] = ModelIndex(last=index.last, deleted=index.last)
                self._disk.remove_file(self._layout.active(name))
                self._disk.remove_file(self._layout.labels(name))
                for number in removed:
                    self._disk.discard(self._layout.version(name, number).path)
                self._blobs.sweep(files)
                return
            index.check_deletable(name, version)
            trash = self._layout.trash / f"{name}-{version}"
            self._disk.move(self._layout.version(name, version).path, trash)
            files = index.digests(version)
            index.without(version)
        self._disk.discard(trash)
        self._blobs.sweep(files)

    def bytes_on_disk(self) -> int:
        """Return what artifacts take: a file that several have counts once."""
        return stored_bytes(each for index in self._models.values() for each in index.contents.values())

    def is_mine(self, name: str, version: int) -> bool:  # noqa: ARG002 - every version is
        """Return True: there is one server."""
        return True

    def fetch(self, name: str, version: int) -> None:
        """Do nothing: what is built is here."""

    def has(self, name: str, version: int, contents: Contents) -> bool:
        """Return whether a version with those contents is here."""
        index = self._models.get(name, ModelIndex())
        record = index.versions.get(version)
        return record is not None and record.state is State.BUILT and index.contents.get(version) == contents

    def known(self, name: str, version: int) -> VersionRecord | None:
        """Return a version, or None where it is not here."""
        return self._models.get(name, ModelIndex()).versions.get(version)

    def path_of(self, name: str, version: int) -> VersionLayout:
        """Return where a version is, or would be."""
        return self._layout.version(name, version)

    def link_blob(self, digest: FileDigest, target: Path) -> bool:
        """Let ``target`` be a file that some artifact here has; False where none has it, or it can't be linked."""
        blob = self._layout.blobs / digest.sha256
        try:
            if blob.stat().st_size == digest.n_bytes:
                target.hardlink_to(blob)
                return True
        except OSError:
            pass
        return False

    def status(self) -> dict[str, Any]:
        """Return where it is and what it holds, as plain JSON types."""
        return {
            "directory": str(self._layout.root),
            "is_read_only": self.is_read_only,
            "models": len(self.models()),
            "bytes": self.bytes_on_disk(),
            "damage": len(self.damage),
        }

    def collectable(self, name: str, *, keep: int, in_use: Collection[int] = ()) -> list[int]:
        """Return the versions that may go by themselves (``collection``), oldest first. Errors: ModelNotFound."""
        return collectable(self._index(name), keep=keep, in_use=in_use)

    def sweep(self) -> int:
        """Delete files that no version has, and return the bytes that were given back. Errors: StoreUnwritable."""
        self._lock.check_writable()
        return self._blobs.sweep()
