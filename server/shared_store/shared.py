"""A model store that several servers share: what is true stands in a bucket, and each server has a directory besides.

Rules:

1. One object says all of a model (``documents``), and is only ever replaced as it was read: of two servers that would
   make version 7 one makes version 8. What it says is true at that moment, everywhere as soon as it is read.
2. The directory is an ordinary local store: what is built here is built there, and what is to serve is fetched there,
   file by file, those that are there already not again, each compared with its SHA-256.
3. A version is published in this order: its files, its options, the document. Whoever dies in between leaves nothing
   that anybody sees; when it is started again it finds the version built, and publishes it.
4. A version that is being built belongs to the server that builds it. Each server says now and then that it lives; what
   belongs to one that has not for long is FAILED by whoever notices. Both times are the bucket's own.
5. A bucket that can't be reached changes nothing of what is here: it goes on serving, and a server even starts with
   what its directory says. Only changes are refused.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from server.shared_store.bucket import Bucket
from server.shared_store.document import Document, VersionFacts
from server.shared_store.documents import Documents, timestamp
from server.shared_store.in_directory import InDirectory
from server.shared_store.publishing import Publishing
from server.store import Conflict, Quotas, State, Store, StoreError, StoreUnreachable, VersionRecord
from server.store.activation import MAX_HISTORY, Activation
from server.store.closing import Closing
from server.store.collection import collectable
from server.store.index import ModelIndex
from server.store.layout import check_name
from server.store.records import NO_INTAKE, Intake
from server.store.recovery import STOPPED_WHILE_BUILDING

__all__ = ["SharedStore"]

_log = logging.getLogger(__name__)

#: A server that has said nothing for so long, seconds, builds nothing any more.
_LEASE_S = 120.0
#: Most bytes of a version's source in its document: functions by their names, not archives or texts.
_MAX_SOURCE_BYTES = 2_000
#: Versions that are kept in the directory besides those in use, so that going back to them fetches nothing.
_KEPT_HERE = 2
#: Seconds in which what was fetched is on its way to being loaded.
_FRESH_S = 900.0


class SharedStore(Documents, InDirectory, Closing):
    """The models in a bucket, as this server last read them. ``directory`` is a local store that is this server's own.

    Errors: every change raises StoreUnreachable where the bucket can't be reached.
    """

    def __init__(self, bucket: Bucket, directory: Store, *, quotas: Quotas | None = None) -> None:
        super().__init__(bucket, saved=directory.upload_dir().parent / "shared")
        self.quotas = quotas or Quotas()
        self._here = directory
        self._publishing = Publishing(bucket, directory)
        #: Versions that a build has just ended with: they are published by it.
        self._committing: set[tuple[str, int]] = set()
        #: When a version was fetched, by the monotonic clock.
        self._fetched_s: dict[tuple[str, int], float] = {}
        #: Why the bucket can't be reached, and since when; empty while it can.
        self.trouble = ""
        self.damage: tuple[str, ...] = directory.damage

    @classmethod
    def open(cls, bucket: Bucket, root: Path, *, quotas: Quotas | None = None, verify: bool = False) -> SharedStore:
        """Open the store in ``bucket`` with the directory ``root``, whether or not the bucket can be reached.

        Errors: those of ``Store.open`` for the directory; StoreDamaged for objects that are no store's.
        """
        opened = cls(bucket, Store.open(root, verify=verify), quotas=quotas)
        opened._read_saved()
        opened.refresh()
        if not opened.trouble:
            opened._settle()
        return opened

    def close(self) -> None:
        """Let another process have the directory."""
        self._here.close()

    # What is here.

    def is_mine(self, name: str, version: int) -> bool:
        """Return whether this server builds a version, or built it."""
        facts = self._facts.get(name, {}).get(version)
        return facts is not None and facts.owner == self.server_id

    def status(self) -> dict[str, Any]:
        """Return where it is and what this server has of it; ``trouble``: why the bucket can't be reached."""
        return {
            **self._here.status(),
            "models": len(self.models()),
            "bucket": self._bucket.shown,
            "server": self.server_id,
            "trouble": self.trouble,
        }

    def spec(self, name: str, version: int) -> dict[str, Any]:
        """Read the options of a version that is built here, or was fetched. Errors: also VersionNotFound."""
        self.record(name, version)
        return self._here.spec(name, version)

    def source(self, name: str, version: int) -> dict[str, Any]:
        """Read what a version is built from; of another server's, as far as it is short."""
        self.record(name, version)
        if self.is_mine(name, version):
            return self._here.source(name, version)
        return dict(self._facts[name][version].source)

    def artifact_dir(self, name: str, version: int) -> Path:
        """Return the compiled model, once it was fetched. Errors: ModelNotFound; VersionNotFound; Conflict."""
        self._index(name).check_built(name, version)
        return self._here.path_of(name, version).artifact

    def collectable(self, name: str, *, keep: int, in_use: Collection[int] = ()) -> list[int]:
        """Return the versions that may go by themselves, oldest first. Errors: ModelNotFound."""
        return collectable(self._index(name), keep=keep, in_use=in_use)

    # What changes.

    def check_new(self, name: str, *, n_bytes: int) -> None:
        """Raise what ``create_version`` would for an archive of so many bytes, by what was read of the bucket last."""
        check_name(name)
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
    ) -> VersionRecord:
        """Add a version in state BUILDING with the next number, which is this server's to build."""
        check_name(name)
        kept = dict(source or {})
        facts = VersionFacts(self.server_id, kept if len(json.dumps(kept)) <= _MAX_SOURCE_BYTES else {})

        def add(document: Document) -> int:
            index = document.index
            self.quotas.check_new_version(name, index)
            n_bytes = archive.stat().st_size if archive else 0
            self.quotas.check_bytes(name, {**self._models, name: index}, contents=None, more=n_bytes)
            number = index.last + 1
            index.last = number
            index.versions[number] = VersionRecord(
                model=name,
                version=number,
                state=State.BUILDING,
                created_at=timestamp(),
                labels=dict(spec.get("labels") or {}),
                awaits_switch=bool(spec.get("activate", True)),
                intake=intake,
            )
            document.facts[number] = facts
            return number

        number = self._change(name, add)
        try:
            self._here.create_version(name, spec, source=source, archive=archive, intake=intake, number=number)
        except StoreError as error:
            with suppress(StoreError):
                self.fail(name, number, str(error))
            raise
        return self.record(name, number)

    def commit(self, name: str, version: int) -> VersionRecord:
        """Turn what the builder wrote into the artifact, here and for everybody."""
        self._index(name).check_building(name, version)
        self._committing.add((name, version))
        try:
            self._here.commit(name, version)
            return self._publish(name, version)
        finally:
            self._committing.discard((name, version))

    def fail(self, name: str, version: int, reason: str) -> VersionRecord:
        """Say why a version was not built."""

        def end(document: Document) -> None:
            record = document.index.check_building(name, version)
            document.index.versions[version] = replace(record, state=State.FAILED, reason=reason)

        self._change(name, end)
        self._forget_here(name, version)
        return self.record(name, version)

    def interrupt(self, name: str, version: int) -> None:
        """Note that a build is stopped in good order: this server begins it again when it is started."""
        self._here.interrupt(name, version)

    def fetch(self, name: str, version: int) -> None:
        """See to it that a version is in the directory, byte by byte what was built. Errors: also StoreDamaged."""
        index = self._index(name)
        record, contents = index.check_built(name, version), index.contents[version]
        self._fetched_s[name, version] = time.monotonic()
        with self._publishing.fetching:
            if self._here.has(name, version, contents):
                return
            self._forget_here(name, version)
            self._publishing.fetch(record, contents, self._facts[name][version].spec)

    def record_contents(self, name: str, version: int) -> None:
        """Do nothing: what is in a bucket is recorded."""

    def activate(self, name: str, version: int, *, by: str = "", newest: bool = False) -> VersionRecord:
        """Make a built version the one that answers, everywhere. ``newest``: if no newer one does (Superseded)."""

        def point(document: Document) -> None:
            index = document.index
            index.check_built(name, version)
            if newest:
                index.check_newest(name, version)
            document.activate(version, at=timestamp(), by=by)

        index = self._index(name)
        # What follows somebody else's activation changes nothing, and must not need the bucket.
        if index.active != version or index.check_built(name, version).awaits_switch:
            self._change(name, point)
        return self.record(name, version)

    def deactivate(self, name: str, *, by: str = "") -> None:
        """Let no version of the model answer anywhere, until one is activated."""

        def unload(document: Document) -> None:
            index = document.index
            if not index.is_unloaded:
                index.history = [*index.history, Activation(None, timestamp(), by)][-MAX_HISTORY:]
                index.active, index.is_unloaded, index.unloaded = None, True, index.active

        self._index(name)
        self._change(name, unload)

    def set_label(self, name: str, label: str, version: int) -> None:
        """Let a label lead to a built version, everywhere."""

        def point(document: Document) -> None:
            document.index.check_built(name, version)
            document.index.labels = document.index.labelled(label, version)

        self._index(name)
        self._change(name, point)

    def remove_label(self, name: str, label: str) -> None:
        """Remove a label that was set."""

        def remove(document: Document) -> None:
            labels = document.index.labels
            document.index.labels = {each: version for each, version in labels.items() if each != label}

        self._index(name)
        self._change(name, remove)

    def delete(self, name: str, version: int | None = None) -> None:
        """Delete one version, or the model. Its files stay in the bucket until they are swept."""

        def remove(document: Document) -> None:
            index = document.index
            if version is None:
                document.index = ModelIndex(last=index.last, deleted=index.last)
                document.facts = {}
            else:
                index.check_deletable(name, version)
                index.without(version)
                del document.facts[version]

        numbers = [record.version for record in self.versions(name)] if version is None else [version]
        self._change(name, remove)
        for number in numbers:
            self._forget_here(name, number)

    # Following.

    def refresh(self) -> set[str]:
        """Read what others have changed, and return the models of which that is so. ``trouble`` says if it can't be."""
        try:
            changed = self._read_changes()
        except StoreUnreachable as error:
            if not self.trouble:
                self.trouble = f"{error} (since {timestamp()})"
                _log.warning("%s: what is here goes on serving", self.trouble)
            return set()
        if self.trouble:
            _log.info("the bucket can be reached again")
            self.trouble = ""
        return changed

    def _read_changes(self) -> set[str]:
        beat = self._publishing.say_alive(self.server_id)
        changed = self._read_again()
        for name in self.models():
            changed |= {name} if self._finish(name, beat) else set()
        self._clear_up()
        return changed

    def _finish(self, name: str, beat: datetime) -> bool:
        """Publish what this server built and could not, and fail what nobody builds any more."""
        any_done = False
        for record in self.versions(name):
            if record.state is not State.BUILDING:
                continue
            owner = self._facts[name][record.version].owner
            if (name, record.version) in self._committing:
                continue
            if owner == self.server_id and _is_built(self._here, name, record.version):
                self._publish(name, record.version)
                any_done = True
            elif owner != self.server_id and not self._publishing.lives(owner, beat, lease_s=_LEASE_S):
                reason = "the server that was building it is gone: register it again"
                with suppress(Conflict):
                    self.fail(name, record.version, reason)
                any_done = True
        return any_done

    def _settle(self) -> None:
        """After a start: what this server was building and has lost has failed; what is in the directory alone goes."""
        for name in self.models():
            for record in self.versions(name):
                if record.state is not State.BUILDING or not self.is_mine(name, record.version):
                    continue
                local = self._here.known(name, record.version)
                if local is None or local.state is State.FAILED:
                    reason = STOPPED_WHILE_BUILDING if local is None else local.reason
                    with suppress(StoreError):
                        self.fail(name, record.version, reason)
        for name in self._here.models():
            for mine in self._here.versions(name):
                known = self._models.get(name, ModelIndex()).versions.get(mine.version)
                if known is None or known.state is State.FAILED:
                    self._forget_here(name, mine.version)

    def _clear_up(self) -> None:
        """Delete from the directory what was deleted everywhere, and what is not in use and can be fetched again."""
        for name in self._here.models():
            index = self._models.get(name, ModelIndex())
            built = [record.version for record in self._here.versions(name) if record.state is State.BUILT]
            in_use = {index.active, index.unloaded, *index.labels.values(), *sorted(built)[-_KEPT_HERE:]}
            for number in built:
                known = index.versions.get(number)
                is_fresh = time.monotonic() - self._fetched_s.get((name, number), -_FRESH_S) < _FRESH_S
                is_idle = known is not None and known.state is State.BUILT and number not in in_use and not is_fresh
                if known is None or is_idle:
                    self._forget_here(name, number)

    def _publish(self, name: str, version: int) -> VersionRecord:
        contents = self._here.contents(name, version)
        assert contents is not None, "it was committed by this release"
        self.quotas.check_bytes(name, self._models, contents=contents)
        spec = self._publishing.upload(name, version, contents)

        def built(document: Document) -> None:
            record = document.index.check_building(name, version)
            document.index.versions[version] = replace(record, state=State.BUILT)
            document.index.contents[version] = contents
            document.facts[version].spec = spec

        self._change(name, built)
        return self.record(name, version)

    def _forget_here(self, name: str, version: int) -> None:
        with suppress(StoreError):
            self._here.delete(name, version)


def _is_built(store: Store, name: str, version: int) -> bool:
    record = store.known(name, version)
    return record is not None and record.state is State.BUILT
