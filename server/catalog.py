"""Every model that the server knows: registering, building, loading, switching, deleting.

The catalog drives store, builder and engine, and is the one place that knows which version serves. All of it runs
on the event loop; what takes long (building, loading, deleting) is awaited there and done elsewhere. A switch is
one assignment: requests that come after it go to the new version, those before it are finished by the old one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from server.artifact import CERTIFICATE_FILE, COSTS_FILE
from server.build import ArchiveSource, Builder, BuildRequest, ImportSource, Progress
from server.catalog_options import BuildObserver, CatalogOptions
from server.engine import EngineError
from server.errors import RowwiseError
from server.hosting import Host, Hosted
from server.serving import ServedModel
from server.serving_versions import Announce, ServingVersion, labels_leading_to, nobody_to_tell
from server.spec import ModelSpec
from server.store import ModelNotReady, State, Store, VersionRecord
from server.version_life import Life, as_lived, why_not

__all__ = ["Catalog"]

_log = logging.getLogger(__name__)


class Catalog:
    """Models by name, and the one version of each that serves.

    ``on_build`` is told how each build ended; ``announce`` is awaited after what serves has changed, and before what
    served is unloaded. Errors of every method that takes a name: InvalidName.
    """

    def __init__(
        self,
        *,
        store: Store,
        builder: Builder,
        host: Host,
        options: CatalogOptions,
        on_build: BuildObserver = lambda model, result: None,
        announce: Announce = nobody_to_tell,
    ) -> None:
        self._store = store
        self._builder = builder
        self._host = host
        self._options = options
        self._on_build = on_build
        self._announce = announce
        #: The serving version of each model. Replaced as a whole entry, read by every request.
        self._serving: dict[str, Hosted] = {}
        self._lives: dict[tuple[str, int], Life] = {}
        #: One change of what serves at a time, for each model.
        self._changes: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        #: Why a model that should serve does not, by name.
        self._missing: dict[str, str] = {}
        self._has_started = False
        self._is_draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._upload_numbers = itertools.count(1)

    # What is asked.

    def resolve(self, name: str, version: int | None = None) -> ServedModel:
        """Return the handle for predictions.

        Errors: ModelNotFound; VersionNotFound; ModelNotReady if it exists and does not serve.
        """
        hosted = self._serving.get(name)
        if hosted is not None and (version is None or version == hosted.model.version):
            return hosted.model
        record = self.version(name, version) if version is not None else self._representative(name)
        raise ModelNotReady(name, version, why_not(record))

    def serving(self) -> list[ServingVersion]:
        """Return every version that serves."""
        return [
            ServingVersion(hosted.model, labels_leading_to(hosted.model.version, self.versions(name)))
            for name, hosted in self._serving.items()
        ]

    def models(self) -> list[VersionRecord]:
        """Return every version of every model, by name, oldest first."""
        return [record for name in self._store.models() for record in self.versions(name)]

    def versions(self, name: str) -> list[VersionRecord]:
        """Return every version, oldest first. Errors: ModelNotFound."""
        return [self._overlaid(record) for record in self._store.versions(name)]

    def version(self, name: str, version: int) -> VersionRecord:
        """Return one version. Errors: ModelNotFound; VersionNotFound."""
        return self._overlaid(self._store.record(name, version))

    def certificate(self, name: str, version: int | None = None) -> bytes:
        """Return the certificate as JSON. Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built."""
        return self._artifact_file(name, version, CERTIFICATE_FILE)

    def costs(self, name: str, version: int | None = None) -> bytes:
        """Return the measured costs as JSON. Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built."""
        return self._artifact_file(name, version, COSTS_FILE)

    def readiness(self) -> list[str]:
        """Return why the server is not ready, a sentence each; empty when it is."""
        if self._is_draining:
            return ["the server is stopping"]
        if not self._has_started:
            return ["the server is starting"]
        return [f"model {name!r}: {reason}" for name, reason in sorted(self._missing.items())]

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
        for name in self._store.models():
            active = self._store.active(name)
            if active is not None:
                self._missing[name] = f"version {active} is being loaded"
                self._spawn(self._resume(name, active))
        self._has_started = True
        known = set(self._store.models())
        for name, target in self._options.expected.items():
            if name not in known or self._store.active(name) is None:
                self._missing[name] = "it is being built"
                self._spawn(self._register_expected(name, target))

    async def register(self, name: str, spec: ModelSpec, source: ArchiveSource | ImportSource) -> VersionRecord:
        """Record a new version as BUILDING and start its build. Errors: InvalidName; StoreUnwritable."""
        loop = asyncio.get_running_loop()
        options = spec.model_dump(mode="json", exclude_unset=True)
        record = await loop.run_in_executor(None, self._store.create_version, name, options)
        self._lives[name, record.version] = Life(State.BUILDING)
        self._host.prepare()
        life = self._lives[name, record.version]
        life.task = asyncio.create_task(self._build(name, record.version, options, source))
        self._hold(life.task)
        await self._announce()  # a label may lead to it from now on
        return self._overlaid(record)

    async def activate(self, name: str, version: int) -> VersionRecord:
        """Load and warm a built version, then let it answer in place of the one that did.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built; ArtifactRefused or LoadFailed, in which
            case nothing has changed.
        """
        async with self._changes[name]:
            await self._switch(name, version)
        return self.version(name, version)

    async def delete(self, name: str, version: int | None = None) -> None:
        """Delete a version, or the model with all of them. Running requests of it are finished first.

        Errors: ModelNotFound; VersionNotFound; Conflict for one version that is the active one.
        """
        numbers = [record.version for record in self._store.versions(name)] if version is None else [version]
        if version is not None:
            self._store.record(name, version)
        for number in numbers:
            life = self._lives.get((name, number))
            if life is not None and life.task is not None and not life.task.done():
                life.task.cancel()
                await asyncio.wait({life.task})
        async with self._changes[name]:
            serving = self._serving.get(name)
            if version is None and serving is not None:
                del self._serving[name]
                await self._retire(serving, self._mark_unloading(serving))
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._store.delete, name, version)
            if version is None:
                self._missing.pop(name, None)
            for number in numbers:
                gone = self._lives.pop((name, number), None)
                if gone is not None:
                    gone.settled.set()

    def begin_drain(self) -> None:
        """Say not ready from now on."""
        self._is_draining = True

    async def drain(self) -> None:
        """Admit nothing more, stop builds, and return when everything that was admitted is answered."""
        self.begin_drain()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._host.drain()

    # How it is done.

    async def _build(
        self, name: str, version: int, options: Mapping[str, Any], source: ArchiveSource | ImportSource
    ) -> None:
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
                import_packages=self._options.import_packages,
            )

            def on_progress(progress: Progress) -> None:
                life.progress = progress.to_json()

            await self._builder.build(request, on_progress)
            await loop.run_in_executor(None, self._store.commit, name, version)
            life.state = State.BUILT
            async with self._changes[name]:
                active = self._store.active(name)
                if active is None or active < version:
                    await self._switch(name, version)
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
        if self._serving.get(name) is None and name in self._missing:
            self._missing[name] = reason
        _log.warning("version %d of model %r failed: %s", version, name, reason)
        loop = asyncio.get_running_loop()
        # A version that was built and can't be loaded stays as it is on disk; the store says no to failing it.
        with contextlib.suppress(RowwiseError):
            await asyncio.shield(loop.run_in_executor(None, self._store.fail, name, version, reason))

    async def _switch(self, name: str, version: int) -> None:
        """Load ``version`` and let it serve. Called under the model's lock."""
        serving = self._serving.get(name)
        if serving is not None and serving.model.version == version:
            return
        artifact = self._store.artifact_dir(name, version)
        life = self._lives.setdefault((name, version), Life(State.BUILT))
        life.state, life.reason = State.LOADING, ""
        life.settled.clear()
        try:
            await self._load(name, version, artifact, life)
        finally:
            # A build that has got here says itself when it is over.
            if life.task is None or life.task.done():
                life.settled.set()

    async def _load(self, name: str, version: int, artifact: Path, life: Life) -> None:
        serving = self._serving.get(name)
        spec = ModelSpec.model_validate(self._store.spec(name, version))
        loop = asyncio.get_running_loop()
        try:
            hosted = await self._host.load(
                name,
                version,
                artifact,
                queue_rows=spec.queue or self._options.queue_rows,
                default_timeout_s=self._options.default_timeout_s
                if spec.default_timeout_ms is None
                else spec.default_timeout_ms / 1_000,
                batch_limit=self._options.batch_limit,
            )
        except EngineError as error:
            life.state, life.reason = State.UNLOADED, str(error)
            raise
        except asyncio.CancelledError:
            life.state = State.UNLOADED
            raise
        # Once the disk may say that this version is the active one, it becomes that here too, cancelled or not.
        writing = loop.run_in_executor(None, self._store.activate, name, version)
        cancelled: asyncio.CancelledError | None = None
        while not writing.done():
            try:
                await asyncio.wait({writing})
            except asyncio.CancelledError as error:
                cancelled = error
        try:
            writing.result()
        except RowwiseError:
            life.state = State.UNLOADED
            await self._host.unload(hosted)
            raise
        self._serving[name] = hosted
        life.state = State.AVAILABLE
        self._missing.pop(name, None)
        _log.info("model %r: version %d serves", name, version)
        if serving is not None:
            self._spawn(self._retire(serving, self._mark_unloading(serving)))
        # What has just been loaded lives until it is unloaded: full collections need not look at it again.
        gc.collect()
        gc.freeze()
        if cancelled is not None:
            raise cancelled
        await self._announce()

    async def _retire(self, hosted: Hosted, life: Life | None) -> None:
        await self._announce()
        await self._host.unload(hosted)
        # It may have been activated again meanwhile, and then it is loaded a second time.
        if life is not None and life.state is State.UNLOADING:
            life.state = State.UNLOADED

    def _mark_unloading(self, hosted: Hosted) -> Life | None:
        life = self._lives.get((hosted.model.name, hosted.model.version))
        if life is not None and life.state is State.AVAILABLE:
            life.state = State.UNLOADING
        return life

    async def _resume(self, name: str, version: int) -> None:
        """Load what was active when the server stopped."""
        try:
            async with self._changes[name]:
                await self._switch(name, version)
        except RowwiseError as error:
            self._missing[name] = f"version {version} could not be loaded: {error}"
            _log.error("model %r: %s", name, self._missing[name])

    async def _register_expected(self, name: str, target: str) -> None:
        try:
            record = await self.register(name, ModelSpec(), ImportSource(target))
        except RowwiseError as error:
            self._missing[name] = str(error)
            _log.error("model %r: %s", name, error)
            return
        record = await self.wait(name, record.version)
        if record.state is State.FAILED:
            self._missing[name] = record.reason

    def _representative(self, name: str) -> VersionRecord:
        """Return the record that stands for a model: its active version, else its newest. Errors: ModelNotFound."""
        versions = self.versions(name)
        return next((record for record in versions if record.active), versions[-1])

    def _overlaid(self, record: VersionRecord) -> VersionRecord:
        return as_lived(record, self._lives.get((record.model, record.version)))

    def _artifact_file(self, name: str, version: int | None, file: str) -> bytes:
        if version is None:
            version = self._representative(name).version
        return (self._store.artifact_dir(name, version) / file).read_bytes()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin something that nobody waits for, hold on to it until it ends, and log what it failed with."""
        self._hold(asyncio.create_task(work))

    def _hold(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task failed", exc_info=error)
