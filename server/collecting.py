"""Old versions go by themselves: after each switch and each build, as the setting ``keep_versions`` says.

Which ones the store decides (``server.store.collection``), under the model's lock and with what only the server knows:
what is loaded, loading or unloading, and what runs as a shadow. What is registered meanwhile has a higher number than
whatever may go, and deleting a version is one step that a crash comes before or after.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping

from server.background import Background
from server.errors import RowwiseError
from server.shadows import Shadows
from server.store import ModelStore, State
from server.switching import Switching
from server.version_life import Life

__all__ = ["Collecting"]

_log = logging.getLogger(__name__)

#: States of a version that may be in memory, or on its way there or out.
_IN_MEMORY = frozenset({State.LOADING, State.AVAILABLE, State.UNLOADING})


class Collecting:
    """Deletes versions that nobody needs. ``keep`` None: none. All of it runs on the event loop."""

    def __init__(
        self,
        *,
        store: ModelStore,
        switching: Switching,
        shadows: Shadows,
        lives: Mapping[tuple[str, int], Life],
        background: Background,
        keep: int | None,
    ) -> None:
        self._store = store
        self._switching = switching
        self._shadows = shadows
        self._lives = lives
        self._background = background
        self.keep = keep

    def soon(self, name: str) -> None:
        """Clear a model up beside what else goes on."""
        if self.keep is not None and not self._store.is_read_only:
            self._background.start(self._collect(name))

    async def take_up(self) -> None:
        """Take up the files of artifacts that a release without checksums built."""
        loop = asyncio.get_running_loop()
        for name in [] if self._store.is_read_only else self._store.models():
            for record in self._store.versions(name):
                with contextlib.suppress(
                    RowwiseError
                ):  # it was deleted meanwhile, or can't be read; who loads it says so
                    if record.state is State.BUILT and self._store.contents(name, record.version) is None:
                        await loop.run_in_executor(None, self._store.record_contents, name, record.version)

    async def _collect(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        async with self._switching.change(name):
            if self.keep is None or name not in self._store.models():
                return
            in_use = {number for (model, number), life in self._lives.items() if model == name and _is_needed(life)}
            in_use |= {each.version for each in self._store.versions(name) if self._shadows.report(name, each.version)}
            for version in self._store.collectable(name, keep=self.keep, in_use=in_use):
                try:
                    await loop.run_in_executor(None, self._store.delete, name, version)
                except RowwiseError as error:
                    _log.warning("version %d of model %r was to be deleted: %s", version, name, error)
                    return
                _log.info("model %r: version %d is deleted (keep_versions is %d)", name, version, self.keep)


def _is_needed(life: Life) -> bool:
    return life.state in _IN_MEMORY or (life.task is not None and not life.task.done())
