"""One registration on its way to serving: built in a process of its own, committed to the store, switched in.

A build that ends in any other way leaves its version FAILED with the reason, and what serves as it is. One that the
server's own end cuts off stays BUILDING in the store, which has its source: it is built again at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

from server.build import Builder, BuildFailed, BuildRequest, Progress
from server.build.source import SOURCE_FILE, Source, TextSource, source_from_json
from server.catalog_options import BuildObserver
from server.errors import RowwiseError
from server.store import ModelStore, State, StoreDamaged, Superseded
from server.switching import Switching
from server.version_life import Life

__all__ = ["Building"]

_log = logging.getLogger(__name__)


class Building:
    """Runs builds. ``lives`` is the catalog's; ``on_build`` is told how each build ended.

    ``invariant``: every build is one for invariant mode, whatever its specification says.
    """

    def __init__(
        self,
        *,
        store: ModelStore,
        builder: Builder,
        switching: Switching,
        lives: dict[tuple[str, int], Life],
        import_packages: tuple[str, ...],
        invariant: bool,
        on_build: BuildObserver,
    ) -> None:
        self._store = store
        self._builder = builder
        self._switching = switching
        self._lives = lives
        self._import_packages = import_packages
        self._invariant = invariant
        self._on_build = on_build
        self._is_stopping = False

    def stop(self) -> None:
        """The server is stopping: what is cancelled from now on is built again when it is started the next time."""
        self._is_stopping = True

    async def check(self, source: Source) -> None:
        """Errors: JailIncomplete where this machine builds nothing from such a source."""
        await self._builder.check(source)

    async def run(self, name: str, version: int) -> None:
        """Build a version that the store knows as BUILDING, and let it serve if it is to and no newer one does."""
        life = self._lives[name, version]
        result = "available"
        try:
            await self._build(name, version, life)
            life.state = State.BUILT
            async with self._switching.change(name):
                active = self._store.active(name)
                is_to_serve = self._store.record(name, version).awaits_switch
                if is_to_serve and (active is None or active < version):
                    await self._switching.switch(name, version, by="registration", newest=True)
        except Superseded as error:
            # It is built, and a newer one answers: on another server, where several share the store.
            life.state, life.reason = State.UNLOADED, str(error)
        except RowwiseError as error:
            result = type(error).__name__
            await self._fail(name, version, life, str(error))
        except OSError as error:
            result = "OSError"
            await self._fail(name, version, life, f"the server could not build it: {error.strerror or error}")
        except asyncio.CancelledError:
            result = "cancelled"
            await self._cancelled(name, version, life)
            raise
        finally:
            life.progress = None
            if not life.is_leaving:
                life.settled.set()
            self._on_build(name, result)

    async def _build(self, name: str, version: int, life: Life) -> None:
        loop = asyncio.get_running_loop()
        request = BuildRequest(
            name=name,
            version=version,
            spec={**self._store.spec(name, version), **({"invariant": True} if self._invariant else {})},
            source=self._source(name, version),
            source_dir=self._store.source_dir(name, version),
            output_dir=self._store.staging_dir(name, version),
            import_packages=self._import_packages,
        )

        def on_progress(progress: Progress) -> None:
            life.progress = progress.to_json()

        await self._builder.build(request, on_progress)
        if isinstance(request.source, TextSource):
            # By the server, of what came: the builder is not asked what it was built from.
            await loop.run_in_executor(None, _keep_text, request.source, request.output_dir)
        try:
            await loop.run_in_executor(None, self._store.commit, name, version)
        except StoreDamaged as error:
            # Whoever registered is told what is wrong, and not where the server keeps it.
            raise BuildFailed("StoreDamaged", f"what the build has left is no model: {error.reason}") from error

    def _source(self, name: str, version: int) -> Source:
        """Return what was registered. Errors: StoreDamaged."""
        value = self._store.source(name, version)
        path = self._store.archive(name, version)
        try:
            return source_from_json({**value, "path": str(path)})
        except (KeyError, ValueError) as error:
            raise StoreDamaged(path.parent, f"what it says of its source can't be read: {error!r}") from error

    async def _cancelled(self, name: str, version: int, life: Life) -> None:
        serving = self._switching.serving(name)
        if serving is not None and serving.model.version == version:
            return  # it had got there
        if not self._is_stopping:
            await self._fail(name, version, life, "the build was cancelled")
            return
        life.reason = "the server is stopping; it is built when the server is started again"
        loop = asyncio.get_running_loop()
        # Without this note the next start takes it for one more sudden end; a version that is built needs none.
        with contextlib.suppress(RowwiseError):
            await asyncio.shield(loop.run_in_executor(None, self._store.interrupt, name, version))

    async def _fail(self, name: str, version: int, life: Life, reason: str) -> None:
        reason = _harmless(reason)
        life.state, life.reason = State.FAILED, reason
        if self._switching.serving(name) is None and name in self._switching.missing:
            self._switching.missing[name] = reason
        # Further lines are set in: none of them can pass for a line of the log.
        _log.warning("version %d of model %r failed: %s", version, name, reason.replace("\n", "\n    "))
        loop = asyncio.get_running_loop()
        # A version that was built and can't be loaded stays as it is on disk; the store says no to failing it.
        with contextlib.suppress(RowwiseError):
            await asyncio.shield(loop.run_in_executor(None, self._store.fail, name, version, reason))


def _keep_text(source: TextSource, artifact: Path) -> None:
    """Keep source text with what was built from it. What the builder may have left under that name is replaced."""
    path = artifact / SOURCE_FILE
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with path.open("x", encoding="utf-8") as file:
        file.write(source.text)


def _harmless(reason: str) -> str:
    """Write out what terminals obey: what was handed in speaks in its reason, which people read in logs."""
    return "".join(
        character
        if character.isprintable() or character in "\n\t"
        else character.encode("unicode_escape", "surrogatepass").decode()
        for character in reason
    )
