"""Labels that lead to versions, as TensorFlow Serving's do: a version that one leads to answers, active or not.

A label is moved when the version that it is to lead to is loaded and warm, so that no request by label finds nobody;
what no label leads to any more is unloaded once what it admitted is answered. Switches and rollbacks move no label: a
version that is switched out and has one goes on answering by it.

Labels that a registration brings along lead to the newest version that has them, and keep nothing loaded.
"""

from __future__ import annotations

import asyncio
import logging

from server.background import Background, until_done
from server.errors import RowwiseError
from server.serving_versions import Announce
from server.store import ModelStore
from server.switching import Switching

__all__ = ["Labelling"]

_log = logging.getLogger(__name__)


class Labelling:
    """Sets and removes labels. All of it runs on the event loop, changes under the model's lock."""

    def __init__(self, *, store: ModelStore, switching: Switching, background: Background, announce: Announce) -> None:
        self._store = store
        self._switching = switching
        self._background = background
        self._announce = announce
        #: Why a label does not lead to a version that answers, by model. Written by whoever tried.
        self.missing: dict[str, str] = {}
        switching.is_held = self.is_held

    def is_held(self, name: str, version: int) -> bool:
        """Return whether a version answers because a label leads to it."""
        return version in self.wanted(name)

    def wanted(self, name: str) -> set[int]:
        """Return the versions that labels lead to; none of a model that was unloaded."""
        if name not in self._store.models() or self._store.is_unloaded(name):
            return set()
        return set(self._store.labels(name).values())

    async def set(self, name: str, label: str, version: int) -> None:
        """Load a version, and let a label lead to it.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built; InvalidLabel; ArtifactRefused or
            LoadFailed; StoreUnwritable. Then the label leads where it led.
        """
        self._store.artifact_dir(name, version)  # it is built, or this says so
        async with self._switching.change(name):
            try:
                if not self._store.is_unloaded(name):
                    await self._switching.hold(name, version)
                await self._write(name, label, version)
            finally:
                self._release(name)
            self.missing.pop(name, None)
        await self._announce()

    async def remove(self, name: str, label: str) -> None:
        """Let a label lead nowhere, or where registrations say. Errors: ModelNotFound; StoreUnwritable."""
        async with self._switching.change(name):
            await self._write(name, label, None)
            self._release(name)
        await self._announce()

    def expect(self, name: str) -> None:
        """Say that what labels lead to is about to be loaded."""
        if self.wanted(name):
            self.missing[name] = "what its labels lead to is being loaded"

    async def settle(self, name: str) -> None:
        """Load what labels lead to and does not answer yet, and unload what only labels led to that are gone.

        What can't be loaded is logged, and told by ``missing``. Called under the model's lock.
        """
        self.missing.pop(name, None)
        for version in sorted(self.wanted(name)):
            if self._switching.answering(name, version) is not None:
                continue
            self.missing[name] = f"version {version}, which a label leads to, is being loaded"
            try:
                await self._switching.hold(name, version)
            except RowwiseError as error:
                self.missing[name] = f"version {version}, which a label leads to, could not be loaded: {error}"
                _log.error("model %r: %s", name, self.missing[name])
                break
            self.missing.pop(name, None)
        self._release(name)

    async def _write(self, name: str, label: str, version: int | None) -> None:
        """Write a label down, which is not left half-way when whoever asked for it is gone."""
        store, loop = self._store, asyncio.get_running_loop()
        if version is None:
            writing = loop.run_in_executor(None, store.remove_label, name, label)
        else:
            writing = loop.run_in_executor(None, store.set_label, name, label, version)
        cancelled = await until_done(writing)
        writing.result()
        if cancelled is not None:
            raise cancelled

    def _release(self, name: str) -> None:
        wanted = self.wanted(name)
        for version in self._switching.held(name):
            if version not in wanted:
                self._background.start(self._switching.release(name, version))
