"""One server's catalog over a real store and a real engine, from start to stop; only the builder is a double."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np

from server.batching import QueueLimits
from server.build import BuildFailed, ImportSource, JailIncomplete
from server.catalog import Catalog
from server.catalog_options import CatalogOptions
from server.hosting import Host
from server.protocol import Rows
from server.serving import Answer, ServedModel
from server.spec import ModelSpec
from server.store import State, Store
from tests.catalog.doubles import ScriptedBuilder

Scenario = Callable[["World"], Coroutine[Any, Any, None]]


class World:
    """One server's catalog, from start to stop."""

    def __init__(self, root: Path, artifacts: dict[str, Path], expected: dict[str, str], keep: int | None) -> None:
        self.builds: list[tuple[str, str]] = []
        self.builder = ScriptedBuilder(
            artifacts,
            {
                "m:refused": BuildFailed("LoopedOpError", "op Svd has no converter"),
                "check:m:unjailed": JailIncomplete("nothing is built here without a whole jail"),
                "m:escapes": BuildFailed("RuntimeError", "\x1b[2Jowned\r\u202e\ud800\n2026-01-01 WARNING all is well"),
            },
        )
        self.host = Host(limits=QueueLimits(max_rows=100))
        self.store = Store.open(root)
        self.catalog = Catalog(
            store=self.store,
            builder=self.builder,  # type: ignore[arg-type]
            host=self.host,
            options=CatalogOptions(
                import_packages=("m",),
                batch_limit=None,
                queue_rows=100,
                default_timeout_s=30.0,
                keep_versions=keep,
                expected=expected,
            ),
            on_build=lambda model, result: self.builds.append((model, result)),
            announce=self._announce,
        )
        #: What served each time that it was announced, and what is done then.
        self.announced: list[list[tuple[str, int]]] = []
        self.on_announce: Callable[[], Awaitable[None]] | None = None

    async def _announce(self) -> None:
        self.announced.append([(each.model.name, each.model.version) for each in self.catalog.serving()])
        if self.on_announce is not None:
            await self.on_announce()

    async def register(self, target: str, *, name: str = "model", wait: bool = True, activate: bool = True) -> Any:
        record = await self.catalog.register(name, ModelSpec(activate=activate), ImportSource(target))
        return await self.catalog.wait(name, record.version) if wait else record

    async def predict(self, x: float, *, name: str = "model", version: int | None = None) -> float:
        """Ask for one row; an error is raised."""
        return await self.ask(self.catalog.resolve(name, version), x)

    @staticmethod
    async def ask(handle: ServedModel, x: float) -> float:
        """Ask one that was resolved before; an error is raised."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        handle.predict(Rows(1, (np.array([x], np.float32),)), timeout_s=None, on_done=answered.set_result)
        answer = await answered
        if answer.error is not None:
            raise answer.error
        return float(answer.outputs[0][0])

    async def settle(self, condition: Callable[[], bool]) -> None:
        """Let the loop run until ``condition`` holds."""
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - the catalog has no event for most of what is waited for
                await asyncio.sleep(0.005)

    def state(self, version: int, name: str = "model") -> State:
        return self.catalog.version(name, version).state


class Server:
    """Starts and stops worlds over one store, as a server does."""

    def __init__(self, root: Path, artifacts: dict[str, Path]) -> None:
        self._root = root
        self._artifacts = artifacts

    def run(
        self,
        scenario: Scenario,
        *,
        expected: dict[str, str] | None = None,
        starts: bool = True,
        keep: int | None = None,
    ) -> World:
        async def serve() -> World:
            world = World(self._root, self._artifacts, expected or {}, keep)
            world.host.start()
            try:
                if starts:
                    await world.catalog.start()
                await scenario(world)
            finally:
                await world.catalog.drain()
                await world.host.aclose()
                world.store.close()
            return world

        return asyncio.run(serve())
