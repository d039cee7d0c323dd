"""Every model that the server knows: registering, building, loading, switching, deleting.

The catalog answers what is asked of the models and takes what is to be done with them; how a version is built is in
``server.building``, how it comes to serve in ``server.switching``. All of it runs on the event loop; what takes long
(building, loading, deleting) is awaited there and done elsewhere.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from functools import partial
from pathlib import Path
from typing import Any

from server.background import Background
from server.batching import Draining
from server.build import ArchiveSource, Builder, ImportSource, Source
from server.building import Building
from server.catalog_options import BuildObserver, CatalogOptions
from server.catalog_view import CatalogView
from server.collecting import Collecting
from server.errors import RowwiseError
from server.following import Following
from server.hosting import Host
from server.labelling import Labelling
from server.serving_versions import Announce, nobody_to_tell
from server.shadows import Shadows
from server.spec import ModelSpec
from server.store import Conflict, ModelStore, Quotas, State, Superseded, VersionRecord
from server.store.records import NO_INTAKE, Intake
from server.switching import Switching
from server.version_life import Life

__all__ = ["Catalog"]

_log = logging.getLogger(__name__)


class Catalog(CatalogView):
    """Models by name, and the one version of each that serves.

    ``on_build`` is told how each build ended; ``announce`` is awaited after what serves has changed, and before what
    served is unloaded. Errors of every method that takes a name: InvalidName.
    """

    def __init__(
        self,
        *,
        store: ModelStore,
        builder: Builder,
        host: Host,
        options: CatalogOptions,
        on_build: BuildObserver = lambda model, result: None,
        announce: Announce = nobody_to_tell,
    ) -> None:
        self._host = host
        self._expected = options.expected
        self._announce = announce
        lives: dict[tuple[str, int], Life] = {}
        self._background = Background()
        switching = Switching(
            store=store,
            host=host,
            lives=lives,
            background=self._background,
            announce=announce,
            queue_rows=options.queue_rows,
            default_timeout_s=options.default_timeout_s,
            batch_limit=options.batch_limit,
        )
        self._building = Building(
            store=store,
            builder=builder,
            switching=switching,
            lives=lives,
            import_packages=options.import_packages,
            invariant=options.invariant,
            on_build=self._build_ended,
        )
        self._on_build = on_build
        shadows = Shadows(store=store, host=host, switching=switching)
        self._collecting = Collecting(
            store=store,
            switching=switching,
            shadows=shadows,
            lives=lives,
            background=self._background,
            keep=options.keep_versions,
        )
        super().__init__(
            store=store,
            lives=lives,
            switching=switching,
            shadows=shadows,
            labelling=Labelling(store=store, switching=switching, background=self._background, announce=announce),
        )
        self._upload_numbers = itertools.count(1)
        self._following = Following(
            store=store,
            interval_s=options.follow_s,
            switching=switching,
            labelling=self._labelling,
            shadows=shadows,
            lives=lives,
            resume=self._resume,
            announce=announce,
        )

    # What is asked, besides what ``CatalogView`` says.

    def partial_upload_dir(self) -> Path:
        """Return where uploads in pieces lie, over restarts."""
        return self._store.partial_upload_dir()

    def new_upload_path(self) -> Path:
        """Return a file name for an archive on its way in, on the store's file system."""
        return self._store.upload_dir() / f"upload-{next(self._upload_numbers)}"

    async def wait(self, name: str, version: int) -> VersionRecord:
        """Return once the version is AVAILABLE, FAILED or at rest otherwise.

        Errors: ModelNotFound; VersionNotFound, also if it is deleted meanwhile.
        """
        record = self.version(name, version)
        life = self._lives.get((name, version))
        if life is not None:
            await life.settled.wait()
            record = self.version(name, version)
        return record

    # What is changed.

    async def start(self) -> None:
        """Begin to load what was active, and to register what is expected and missing. Returns at once."""
        if self._is_draining:
            return
        for name in self._store.models():
            active = self._store.active(name)
            self._labelling.expect(name)
            if active is not None:
                self._missing[name] = f"version {active} is being loaded"
                self._background.start(self._resume(name, active))
            elif self._labelling.wanted(name):
                self._background.start(self._resume(name, None))
            for record in self._store.versions(name):
                if not self._store.is_mine(name, record.version):
                    continue  # another server's, which shares the store
                if record.state is State.BUILDING:
                    _log.info("model %r: version %d is built again", name, record.version)
                    self._build(name, record.version)
                elif record.state is State.BUILT and record.awaits_switch:
                    # The server ended after it was built and before it served.
                    self._background.start(self._resume(name, record.version))
        self._has_started = True
        self._background.start(self._collecting.take_up())
        self._background.start(self._following.run())
        known = set(self._store.models())
        for name, target in self._expected.items():
            is_at_rest = name in known and self._store.is_unloaded(name)
            if name not in known or (self._store.active(name) is None and not is_at_rest):
                self._missing[name] = "it is being built"
                self._background.start(self._register_expected(name, target))

    async def check_new(self, name: str, *, n_bytes: int) -> None:
        """Raise what ``register`` would for an archive of ``n_bytes``, as far as that is known before it has come.

        Errors: InvalidName; QuotaExceeded; StoreUnwritable; Draining; JailIncomplete.
        """
        self._refuse_if_draining()
        await self._building.check(ArchiveSource(Path(), ""))
        self._store.check_new(name, n_bytes=n_bytes)

    async def register(
        self, name: str, spec: ModelSpec, source: Source, *, intake: Intake = NO_INTAKE
    ) -> VersionRecord:
        """Record a new version as BUILDING and start its build. A file that was uploaded is moved into the store.

        ``intake`` is kept with the version.

        Errors: InvalidName; StoreUnwritable; Draining; JailIncomplete where this machine builds nothing from that.
        """
        self._refuse_if_draining()
        await self._building.check(source)
        loop = asyncio.get_running_loop()
        options = spec.model_dump(mode="json", exclude_unset=True)
        create = partial(
            self._store.create_version,
            name,
            options,
            # Where its archive is, the store knows itself.
            source={key: value for key, value in source.to_json().items() if key != "path"},
            archive=source.upload,
            intake=intake,
        )
        self._refuse_if_draining()
        record = await asyncio.shield(loop.run_in_executor(None, create))
        self._build(name, record.version)
        await self._announce()  # a label may lead to it from now on
        return self._overlaid(record)

    async def activate(self, name: str, version: int, *, by: str = "") -> VersionRecord:
        """Load and warm a built version, then let it answer in place of the one that did; ``by`` is who asked for it.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built; ArtifactRefused or LoadFailed, in which
            case nothing has changed.
        """
        self._refuse_if_draining()
        async with self._switching.change(name):
            await self._switching.switch(name, version, by=by)
            await self._labelling.settle(name)
        self._collecting.soon(name)
        return self.version(name, version)

    async def rollback(self, name: str, *, by: str = "") -> VersionRecord:
        """Activate the version that answered before the one that does.

        Errors: ModelNotFound; Conflict where there is none; ArtifactRefused or LoadFailed, in which case nothing has
            changed.
        """
        self._refuse_if_draining()
        async with self._switching.change(name):
            version = self._store.previous(name)
            await self._switching.switch(name, version, by=by)
            await self._labelling.settle(name)
        self._collecting.soon(name)
        return self.version(name, version)

    async def set_label(self, name: str, label: str, version: int) -> VersionRecord:
        """Load a version, and let a label lead to it; return it.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built; InvalidLabel; ArtifactRefused or
            LoadFailed, in which case the label leads where it led.
        """
        self._refuse_if_draining()
        await self._labelling.set(name, label, version)
        return self.version(name, version)

    async def remove_label(self, name: str, label: str) -> None:
        """Remove a label that was set; nothing happens where it was not. Errors: ModelNotFound."""
        self._refuse_if_draining()
        await self._labelling.remove(name, label)

    async def load(self, name: str, *, by: str = "") -> VersionRecord:
        """Let the version answer that did when the model was unloaded, or the newest built one if none did.

        Errors: ModelNotFound; Conflict if none is built; ArtifactRefused or LoadFailed.
        """
        self._refuse_if_draining()
        async with self._switching.change(name):
            version = self._store.loadable(name)
            if version is None:
                newest = self.versions(name)[-1]
                raise Conflict(f"no version of model {name!r} is built: version {newest.version} is {newest.state}")
            await self._switching.switch(name, version, by=by)
            await self._labelling.settle(name)
        self._collecting.soon(name)
        return self.version(name, version)

    async def unload(self, name: str, *, by: str = "") -> VersionRecord:
        """Let no version answer, also after a restart; return when what was admitted is answered.

        A version that is built from now on answers all the same: that is what it is registered for.
        Errors: ModelNotFound; StoreUnwritable.
        """
        self._refuse_if_draining()
        async with self._switching.change(name):
            version = self._store.loadable(name)
            await asyncio.get_running_loop().run_in_executor(None, partial(self._store.deactivate, name, by=by))
            self._missing.pop(name, None)
            self._labelling.missing.pop(name, None)
            await self._shadows.stop(name)
            await self._switching.withdraw(name)
        return self.versions(name)[-1] if version is None else self.version(name, version)

    async def set_shadow(self, name: str, version: int, share: float) -> dict[str, Any]:
        """Let a built version run on a share of the live batches, off the callers' path; return its report so far.

        Errors: ModelNotFound; VersionNotFound; Conflict with the reason; ArtifactRefused or LoadFailed.
        """
        self._refuse_if_draining()
        return await self._shadows.set_share(name, version, share)

    async def delete(self, name: str, version: int | None = None) -> None:
        """Delete a version, or the model with all of them. Running requests of it are finished first.

        Errors: ModelNotFound; VersionNotFound; Conflict for one version that is the active one.
        """
        numbers = [record.version for record in self._store.versions(name)] if version is None else [version]
        if version is not None:
            self._store.record(name, version)
        lives = {number: life for number in numbers if (life := self._lives.get((name, number))) is not None}
        try:
            for life in lives.values():
                life.is_leaving = True
                if life.task is not None and not life.task.done():
                    life.task.cancel()
                    await asyncio.wait({life.task})
            async with self._switching.change(name):
                await self._shadows.stop(name, version)
                if version is None:
                    await self._switching.withdraw(name)
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(None, self._store.delete, name, version)
                if version is None:
                    self._missing.pop(name, None)
                    self._labelling.missing.pop(name, None)
                for number in lives:
                    self._lives.pop((name, number), None)
        finally:
            for life in lives.values():
                life.is_leaving = False
                if life.task is None or life.task.done():
                    life.settled.set()

    def change_defaults(self, *, queue_rows: int, default_timeout_s: float) -> None:
        """Go by other bounds for versions whose specification has none of its own. Errors: StoreDamaged."""
        self._switching.change_defaults(queue_rows=queue_rows, default_timeout_s=default_timeout_s)

    def change_keeping(self, quotas: Quotas, *, keep_versions: int | None) -> None:
        """Go by other bounds on what the store may hold, and on what it keeps, from now on."""
        self._store.quotas, self._collecting.keep = quotas, keep_versions

    def begin_drain(self) -> None:
        """Say not ready, admit nothing more, and stop builds. What was admitted is answered."""
        if self._is_draining:
            return
        self._is_draining = True
        self._building.stop()
        for life in self._lives.values():
            if life.task is not None:
                life.task.cancel()

    async def drain(self) -> None:
        """Return when everything that was admitted is answered, and nothing else is under way."""
        self.begin_drain()
        await self._background.cancel()
        await self._host.drain()

    # How it is done.

    def _build(self, name: str, version: int) -> None:
        life = self._lives[name, version] = Life(State.BUILDING)
        self._host.prepare()
        life.task = asyncio.create_task(self._building.run(name, version))
        self._background.hold(life.task)

    def _build_ended(self, name: str, result: str) -> None:
        self._collecting.soon(name)
        self._on_build(name, result)

    def _refuse_if_draining(self) -> None:
        if self._is_draining:
            raise Draining

    async def _resume(self, name: str, version: int | None) -> None:
        """Load what was active when the server stopped, and what labels lead to."""
        async with self._switching.change(name):
            try:
                if version is not None and self._is_still_to_serve(name, version):
                    is_active = self._store.active(name) == version
                    await self._switching.switch(name, version, by="start", newest=True, follows=is_active)
            except Superseded:
                pass  # what answers instead is loaded by whoever activated it, or by who follows that
            except RowwiseError as error:
                self._missing[name] = f"version {version} could not be loaded: {error}"
                _log.error("model %r: %s", name, self._missing[name])
            await self._labelling.settle(name)

    def _is_still_to_serve(self, name: str, version: int) -> bool:
        """Return whether nobody has activated another version, or deleted this one, since the server was started."""
        if name not in self._store.models():
            return False
        waits = any(each.version == version and each.awaits_switch for each in self._store.versions(name))
        return waits or self._store.active(name) == version

    async def _register_expected(self, name: str, target: str) -> None:
        try:
            version = self._under_way(name, target)
            if version is None:
                version = (await self.register(name, ModelSpec(), ImportSource(target))).version
        except RowwiseError as error:
            self._missing[name] = str(error)
            _log.error("model %r: %s", name, error)
            return
        record = await self.wait(name, version)
        if record.state is State.FAILED:
            self._missing[name] = record.reason

    def _under_way(self, name: str, target: str) -> int | None:
        """Return the version that the last start registered for this function and that is not done yet."""
        if name not in self._store.models():
            return None
        for record in reversed(self._store.versions(name)):
            if record.state is State.BUILDING and self._store.source(name, record.version).get("target") == target:
                return record.version
            if record.state is State.BUILT and record.awaits_switch:
                return record.version
        return None
