"""One registration on its way to serving: built in a process of its own, committed to the store, switched in.

A build that ends in any other way leaves its version FAILED with the reason, and what serves as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from server.build import ArchiveSource, Builder, BuildRequest, ImportSource, Progress
from server.catalog_options import BuildObserver
from server.errors import RowwiseError
from server.store import State, Store
from server.switching import Switching
from server.version_life import Life

__all__ = ["Building"]

_log = logging.getLogger(__name__)


class Building:
    """Runs builds. ``lives`` is the catalog's; ``on_build`` is told how each build ended."""

    def __init__(
        self,
        *,
        store: Store,
        builder: Builder,
        switching: Switching,
        lives: dict[tuple[str, int], Life],
        import_packages: tuple[str, ...],
        on_build: BuildObserver,
    ) -> None:
        self._store = store
        self._builder = builder
        self._switching = switching
        self._lives = lives
        self._import_packages = import_packages
        self._on_build = on_build

    async def run(
        self, name: str, version: int, options: Mapping[str, Any], source: ArchiveSource | ImportSource
    ) -> None:
        """Build a version that the store knows as BUILDING, and let it serve if no newer one does."""
        life = self._lives[name, version]
        loop = asyncio.get_running_loop()
        result = "available"
        try:
            request = BuildRequest(
                name=name,
                version=version,
                spec=options,
                source=self._taken(name, version, source),
                source_dir=self._store.source_dir(name, version),
                output_dir=self._store.staging_dir(name, version),
                import_packages=self._import_packages,
            )

            def on_progress(progress: Progress) -> None:
                life.progress = progress.to_json()

            await self._builder.build(request, on_progress)
            await loop.run_in_executor(None, self._store.commit, name, version)
            life.state = State.BUILT
            async with self._switching.change(name):
                active = self._store.active(name)
                if active is None or active < version:
                    await self._switching.switch(name, version)
        except RowwiseError as error:
            result = type(error).__name__
            await self._fail(name, version, life, str(error))
        except OSError as error:
            result = "OSError"
            await self._fail(name, version, life, f"the server could not build it: {error.strerror or error}")
        except asyncio.CancelledError:
            result = "cancelled"
            await self._fail(name, version, life, "the build was cancelled")
            raise
        finally:
            life.progress = None
            life.settled.set()
            self._on_build(name, result)

    def _taken(self, name: str, version: int, source: ArchiveSource | ImportSource) -> ArchiveSource | ImportSource:
        """Move an upload to its version, so that it goes when the version goes."""
        if isinstance(source, ImportSource):
            return source
        own = self._store.source_dir(name, version) / "archive"
        source.path.rename(own)
        return ArchiveSource(own, source.filename)

    async def _fail(self, name: str, version: int, life: Life, reason: str) -> None:
        life.state, life.reason = State.FAILED, reason
        if self._switching.serving(name) is None and name in self._switching.missing:
            self._switching.missing[name] = reason
        _log.warning("version %d of model %r failed: %s", version, name, reason)
        loop = asyncio.get_running_loop()
        # A version that was built and can't be loaded stays as it is on disk; the store says no to failing it.
        with contextlib.suppress(RowwiseError):
            await asyncio.shield(loop.run_in_executor(None, self._store.fail, name, version, reason))
