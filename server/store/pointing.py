"""The part of a store that says which version answers: the active one, and those that labels lead to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from server.store.activation import MAX_HISTORY, Activation
from server.store.durable import Disk
from server.store.errors import StoreUnwritable
from server.store.index import ModelIndex, StoreIndex, check_label
from server.store.layout import Layout, VersionLayout
from server.store.lock import StoreLock
from server.store.records import VersionRecord
from server.store.recovery import record_to_json

__all__ = ["PointedStore"]


class PointedStore(StoreIndex):
    """Models with their versions, and what leads to these. Each change is one file that is replaced.

    Errors: what changes something raises StoreUnwritable where the disk refuses; then nothing has changed.
    """

    def __init__(
        self,
        models: dict[str, ModelIndex],
        *,
        layout: Layout,
        lock: StoreLock,
        disk: Disk,
        now: Callable[[], datetime],
    ) -> None:
        super().__init__(models)
        self._layout = layout
        self._lock = lock
        self._disk = disk
        self._now = now
        #: Held by whoever changes the index, and what on the disk belongs to it.
        self._writing = threading.Lock()

    @property
    def is_read_only(self) -> bool:
        """True where the directory can't be written: what is there can be read, and nothing changed."""
        return self._lock.is_read_only

    def activate(self, name: str, version: int, *, by: str = "", newest: bool = False) -> VersionRecord:
        """Make a built version the one that answers; ``by`` is who asked for it. ``newest``: if no newer one does.

        Errors: ModelNotFound; VersionNotFound; Conflict if not BUILT; Superseded.
        """
        with self._writing:
            index = self._index(name)
            index.check_built(name, version)
            if newest:
                index.check_newest(name, version)
            if index.active != version:
                history = self._point(name, index, version, by, {"version": version})
                index.active, index.is_unloaded, index.unloaded, index.history = version, False, None, history
            for number, waiting in list(index.versions.items()):
                if waiting.awaits_switch and number <= version:
                    # Where that fails, the next opening of the store does it.
                    with suppress(StoreUnwritable):
                        self._write(self._paths(name, number), index, replace(waiting, awaits_switch=False))
            return index.stamped(index.versions[version])

    def deactivate(self, name: str, *, by: str = "") -> None:
        """Let no version of the model answer, until one is activated; which one did is kept. Errors: ModelNotFound."""
        with self._writing:
            index = self._index(name)
            if index.is_unloaded:
                return
            history = self._point(name, index, None, by, {"version": index.active or 0, "unloaded": True})
            index.active, index.is_unloaded, index.unloaded, index.history = None, True, index.active, history

    def set_label(self, name: str, label: str, version: int) -> None:
        """Let a label lead to a built version, from wherever it led to.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't BUILT; InvalidLabel.
        """
        check_label(label)
        with self._writing:
            index = self._index(name)
            index.check_built(name, version)
            self._write_labels(name, index, index.labelled(label, version))

    def remove_label(self, name: str, label: str) -> None:
        """Remove a label that was set; nothing happens where it was not. Errors: ModelNotFound."""
        with self._writing:
            index = self._index(name)
            self._write_labels(name, index, {each: version for each, version in index.labels.items() if each != label})

    def _point(
        self, name: str, index: ModelIndex, version: int | None, by: str, document: dict[str, Any]
    ) -> list[Activation]:
        """Write which version answers, and return the history with that."""
        self._lock.check_writable()
        history = [*index.history, Activation(version, self._timestamp(), by)][-MAX_HISTORY:]
        entries = [activation.to_json() for activation in history]
        self._disk.write_json(self._layout.active(name), {**document, "history": entries})
        return history

    def _write_labels(self, name: str, index: ModelIndex, labels: dict[str, int]) -> None:
        if labels != index.labels:
            self._lock.check_writable()
            self._disk.write_json(self._layout.labels(name), labels)
            index.labels = labels

    def _timestamp(self) -> str:
        return self._now().astimezone(UTC).isoformat(timespec="seconds")

    def _paths(self, name: str, version: int) -> VersionLayout:
        self._index(name).known(name, version)
        return self._layout.version(name, version)

    def _write(self, paths: VersionLayout, index: ModelIndex, record: VersionRecord) -> VersionRecord:
        self._lock.check_writable()
        self._disk.write_json(paths.record, record_to_json(record))
        index.versions[record.version] = record
        return index.stamped(record)
