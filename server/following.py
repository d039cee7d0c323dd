"""Going by what other servers change in a store that they share: looked at again and again, carried out here.

What another server activates is fetched, loaded and warmed here before it answers, as if it had been asked of this one;
until then, and where that fails, what answered goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, runtime_checkable

from server.errors import RowwiseError
from server.labelling import Labelling
from server.serving_versions import Announce
from server.shadows import Shadows
from server.store import ModelStore, State, Superseded
from server.switching import Switching
from server.version_life import Life

__all__ = ["Followed", "Following"]

_log = logging.getLogger(__name__)


@runtime_checkable
class Followed(Protocol):
    """A store that others change too."""

    #: Why it can't be reached, a sentence; empty while it can.
    trouble: str

    def refresh(self) -> set[str]:
        """Read what others have changed, and return the models of which that is so. It takes time: on a thread."""


class Following:
    """Looks at a store every ``interval_s`` seconds, and carries out here what has changed.

    ``resume`` lets a version serve that waited for it. A model of which that fails is tried again the next time.
    """

    def __init__(
        self,
        *,
        store: ModelStore,
        interval_s: float,
        switching: Switching,
        labelling: Labelling,
        shadows: Shadows,
        lives: dict[tuple[str, int], Life],
        resume: Callable[[str, int | None], Coroutine[Any, Any, None]],
        announce: Announce,
    ) -> None:
        self._store = store
        self._interval_s = interval_s
        self._switching = switching
        self._labelling = labelling
        self._shadows = shadows
        self._lives = lives
        self._resume = resume
        self._announce = announce
        self._again: set[str] = set()

    async def run(self) -> None:
        """Follow until cancelled; a store that is this server's alone needs none of it."""
        while isinstance(self._store, Followed):
            await asyncio.sleep(self._interval_s)
            await self._look(self._store)

    async def _look(self, store: Followed) -> None:
        try:
            changed = await asyncio.get_running_loop().run_in_executor(None, store.refresh)
        except RowwiseError as error:
            _log.error("the shared store can't be followed: %s", error)
            return
        names, self._again = self._again | changed, set()
        for name in sorted(names):
            try:
                await self._follow(name)
            except Superseded:
                self._again.add(name)  # it has changed once more while it was loaded
            except RowwiseError as error:
                self._again.add(name)
                _log.error("model %r: what another server changed can't be followed yet: %s", name, error)

    async def _follow(self, name: str) -> None:
        async with self._switching.change(name):
            is_known = name in self._store.models()
            there = {record.version for record in self._store.versions(name)} if is_known else set()
            for key in [key for key in self._lives if key[0] == name and key[1] not in there]:
                del self._lives[key]
            active = self._store.active(name) if is_known else None
            if active is not None:
                await self._switching.switch(name, active, follows=True)
            elif self._switching.serving(name) is not None:
                await self._shadows.stop(name)
                await self._switching.withdraw(name)
            self._switching.missing.pop(name, None)
            await self._labelling.settle(name)
        if is_known:
            await self._serve_what_waited(name, active or 0)
        await self._announce()

    async def _serve_what_waited(self, name: str, active: int) -> None:
        """Let a version serve that was built here when the bucket could not be reached, and is published only now."""
        for record in self._store.versions(name):
            life = self._lives.get((name, record.version))
            is_at_rest = life is None or life.task is None or life.task.done()
            is_waiting = record.state is State.BUILT and record.awaits_switch and record.version > active
            if is_waiting and is_at_rest and self._store.is_mine(name, record.version):
                await self._resume(name, record.version)
