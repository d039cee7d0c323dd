"""Which version of each model serves, and how another one takes its place.

A switch loads and warms the new version beside the old one, writes it down in the store, and is then one assignment:
requests that come after it go to the new version, those before it are finished by the old one. Switches of one model
come one after the other. All of it runs on the event loop.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial

from server.background import Background, until_done
from server.errors import RowwiseError
from server.hosting import Host, Hosted
from server.serving import ServedModel
from server.serving_versions import Announce
from server.spec import ModelSpec
from server.store import ModelStore, State, StoreDamaged
from server.version_life import Life

__all__ = ["Switching"]

_log = logging.getLogger(__name__)


class Switching:
    """The serving version of each model.

    ``lives`` is the catalog's: what became of each version since the server was started. ``announce`` is awaited after
    what serves has changed, and before what served is unloaded. ``queue_rows`` and ``default_timeout_s`` hold for
    versions whose specification has none of its own, ``batch_limit`` for all.
    """

    def __init__(
        self,
        *,
        store: ModelStore,
        host: Host,
        lives: dict[tuple[str, int], Life],
        background: Background,
        announce: Announce,
        queue_rows: int,
        default_timeout_s: float,
        batch_limit: int | None,
    ) -> None:
        self._store = store
        self._host = host
        self._lives = lives
        self._background = background
        self._announce = announce
        self._queue_rows = queue_rows
        self._default_timeout_s = default_timeout_s
        self._batch_limit = batch_limit
        #: The serving version of each model. Replaced as a whole entry, read by every request.
        self._serving: dict[str, Hosted] = {}
        #: Versions that answer where they are asked for by number or label, beside the serving one, by model.
        self._held: defaultdict[str, dict[int, Hosted]] = defaultdict(dict)
        #: Whether a version that is switched out goes on answering, because a label leads to it.
        self.is_held: Callable[[str, int], bool] = lambda _name, _version: False
        #: One change of what serves at a time, for each model.
        self._changes: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        #: Why a model that should serve does not, by name. Written by whoever tried; a switch clears it.
        self.missing: dict[str, str] = {}
        #: Awaited with name and version before it is loaded to serve, and once it serves, under the model's lock.
        self.before: Callable[[str, int], Awaitable[None]] = _nobody_else
        self.after: Callable[[str, int], Awaitable[None]] = _nobody_else

    def serving(self, name: str) -> Hosted | None:
        """Return the version that serves, None where none does."""
        return self._serving.get(name)

    def answering(self, name: str, version: int | None) -> Hosted | None:
        """Return the loaded version that is asked for, None where it does not answer."""
        serving = self._serving.get(name)
        if version is None or (serving is not None and serving.model.version == version):
            return serving
        held = self._held.get(name)
        return None if held is None else held.get(version)

    def held(self, name: str) -> list[int]:
        """Return the versions that answer beside the serving one."""
        return list(self._held.get(name, ()))

    def all_serving(self) -> list[tuple[str, Hosted]]:
        """Return every model's name with the version that serves."""
        return list(self._serving.items())

    def change(self, name: str) -> asyncio.Lock:
        """Return what must be held by whoever changes what serves under that name."""
        return self._changes[name]

    async def switch(
        self, name: str, version: int, *, by: str = "", newest: bool = False, follows: bool = False
    ) -> None:
        """Load a built version and let it serve; ``by`` is who asked for it. Called under the model's lock.

        ``newest``: only if no newer one does; ``follows``: only if the store says that it does, still when it is loaded
        (Superseded).

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built; ArtifactRefused or LoadFailed;
            StoreUnwritable. Then nothing has changed.
        """
        serving = self._serving.get(name)
        if serving is not None and serving.model.version == version:
            return
        self._store.artifact_dir(name, version)  # it is built, or this says so
        await self.before(name, version)
        life = self._begin_loading(name, version)
        try:
            change = partial(self._store.activate, by=by, newest=newest)
            await self._load(name, version, life, self._store.check_active if follows else change)
            await self.after(name, version)
        finally:
            self._settle(life)

    async def load(self, name: str, version: int) -> Hosted:
        """Load and warm a built version, which does not serve by that.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built; ArtifactRefused or LoadFailed.
        """
        await asyncio.get_running_loop().run_in_executor(None, self._store.fetch, name, version)
        spec = self._spec(name, version)
        return await self._host.load(
            name,
            version,
            self._store.artifact_dir(name, version),
            queue_rows=spec.queue or self._queue_rows,
            default_timeout_s=self._default_timeout_s
            if spec.default_timeout_ms is None
            else spec.default_timeout_ms / 1_000,
            batch_limit=self._batch_limit,
        )

    def change_defaults(self, *, queue_rows: int, default_timeout_s: float) -> None:
        """Go by other bounds for versions whose specification has none of its own, those that serve too."""
        self._queue_rows = queue_rows
        self._default_timeout_s = default_timeout_s
        beside = [(name, hosted) for name, held in self._held.items() for hosted in held.values()]
        for name, hosted in (*self._serving.items(), *beside):
            spec = self._spec(name, hosted.model.version)
            if not spec.queue:
                for group in hosted.groups:
                    if group.quota is not None:
                        group.quota.max_rows = queue_rows
            if spec.default_timeout_ms is None:
                for entry in (hosted.model, *(derivative.model for derivative in hosted.model.derivatives)):
                    if isinstance(entry, ServedModel):
                        entry.default_timeout_s = default_timeout_s

    async def withdraw(self, name: str) -> None:
        """Let no version answer; return when what was admitted is answered. Called under the model's lock."""
        serving = self._serving.pop(name, None)
        leaving = [*self._held.pop(name, {}).values(), *([] if serving is None else [serving])]
        lives = [self._mark_unloading(hosted) for hosted in leaving]
        await asyncio.gather(*map(self._retire, leaving, lives))

    async def hold(self, name: str, version: int) -> None:
        """Load a built version that is to answer beside the serving one. Called under the model's lock.

        Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built; ArtifactRefused or LoadFailed.
        """
        if self.answering(name, version) is not None:
            return
        await self.before(name, version)
        life = self._begin_loading(name, version)
        try:
            hosted = await self._loaded(name, version, life)
            self._held[name][version] = hosted
            life.state, life.invariant = State.AVAILABLE, hosted.loaded[0].invariant_buckets
            _log.info("model %r: version %d answers by label", name, version)
        finally:
            self._settle(life)

    async def release(self, name: str, version: int) -> None:
        """Let a version answer no more that is not the serving one; return when what was admitted is answered."""
        hosted = self._held[name].pop(version, None)
        if hosted is not None:
            await self._retire(hosted, self._mark_unloading(hosted))

    def _begin_loading(self, name: str, version: int) -> Life:
        life = self._lives.setdefault((name, version), Life(State.BUILT))
        if self.answering(name, version) is None:
            life.state, life.reason = State.LOADING, ""
            life.settled.clear()
        return life

    @staticmethod
    def _settle(life: Life) -> None:
        # A build that has got here says itself when it is over.
        if life.task is None or life.task.done():
            life.settled.set()

    async def _loaded(self, name: str, version: int, life: Life) -> Hosted:
        try:
            return await self.load(name, version)
        except RowwiseError as error:
            life.state, life.reason = State.UNLOADED, str(error)
            raise
        except asyncio.CancelledError:
            life.state = State.UNLOADED
            raise

    async def _load(self, name: str, version: int, life: Life, activate: Callable[[str, int], object]) -> None:
        serving = self._serving.get(name)
        loop = asyncio.get_running_loop()
        held = self.answering(name, version)
        hosted = await self._loaded(name, version, life) if held is None else held
        # Once the disk may say that this version is the active one, it becomes that here too, cancelled or not.
        writing = loop.run_in_executor(None, activate, name, version)
        cancelled = await until_done(writing)
        try:
            writing.result()
        except RowwiseError:
            if held is None:
                life.state = State.UNLOADED
                await self._host.unload(hosted)
            raise
        self._serving[name] = hosted
        self._held[name].pop(version, None)
        life.state, life.invariant = State.AVAILABLE, hosted.loaded[0].invariant_buckets
        self.missing.pop(name, None)
        _log.info("model %r: version %d serves", name, version)
        if serving is not None:
            if self.is_held(name, serving.model.version):
                self._held[name][serving.model.version] = serving
            else:
                self._background.start(self._retire(serving, self._mark_unloading(serving)))
        # What has just been loaded lives until it is unloaded: full collections need not look at it again.
        gc.collect()
        gc.freeze()
        if cancelled is not None:
            raise cancelled
        await self._announce()

    def _spec(self, name: str, version: int) -> ModelSpec:
        """Read a version's specification. Errors: StoreDamaged."""
        try:
            return ModelSpec.model_validate(self._store.spec(name, version))
        except ValueError as error:
            path = self._store.artifact_dir(name, version).with_name("spec.json")
            raise StoreDamaged(path, f"it is no specification: {error}") from error

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


async def _nobody_else(_name: str, _version: int) -> None:
    """Stand for ``before`` and ``after`` where a switch is nobody else's business."""
