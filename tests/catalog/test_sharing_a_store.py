"""Servers that share a store in a bucket follow each other; each has an engine and a directory of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from server.batching import QueueLimits
from server.build import ImportSource
from server.catalog import Catalog
from server.catalog_options import CatalogOptions
from server.hosting import Host
from server.shared_store import Bucket, SharedStore
from server.spec import ModelSpec
from server.store import ModelNotFound, ModelNotReady, State, StoreUnreachable
from tests.catalog.doubles import ScriptedBuilder
from tests.catalog.world import World

Scenario = Callable[..., Coroutine[Any, Any, None]]


class Member(World):
    """One of the servers."""

    def __init__(self, bucket: Bucket, root: Path, artifacts: dict[str, Path]) -> None:
        self.builder = ScriptedBuilder(artifacts, {})
        self.host = Host(limits=QueueLimits(max_rows=100))
        self.store: SharedStore = SharedStore.open(bucket, root)  # type: ignore[assignment]
        self.catalog = Catalog(
            store=self.store,
            builder=self.builder,  # type: ignore[arg-type]
            host=self.host,
            options=CatalogOptions(
                import_packages=("m",), batch_limit=None, queue_rows=100, default_timeout_s=30.0, follow_s=0.05
            ),
        )

    async def serves(self, expected: float | None, *, version: int | None = None) -> None:
        """Wait until what 1.0 is answered with is that; None: nothing."""
        async with asyncio.timeout(20):
            while True:
                try:
                    answer: float | None = await self.predict(1.0, version=version)
                except (ModelNotFound, ModelNotReady):
                    answer = None
                if answer == expected:
                    return
                await asyncio.sleep(0.02)


class Severed(Bucket):
    """A bucket that can be cut off."""

    is_cut = False

    def _reaching(self) -> Any:
        if self.is_cut:
            raise StoreUnreachable("the bucket can't be reached: it is cut off")
        return super()._reaching()


def run(tmp_path: Path, artifacts: dict[str, Path], scenario: Scenario, *names: str) -> None:
    async def serve() -> None:
        memory = MemoryStore()
        buckets = [Severed(memory, shown="memory") for _ in names]
        members = [Member(bucket, tmp_path / name, artifacts) for bucket, name in zip(buckets, names, strict=True)]
        for member in members:
            member.host.start()
            await member.catalog.start()
        try:
            await scenario(*members, *buckets[: len(members)])
        finally:
            for member in members:
                await member.catalog.drain()
                await member.host.aclose()
                member.store.close()

    asyncio.run(serve())


def test_registrations_activations_labels_and_deletions_are_followed(
    tmp_path: Path, artifacts: dict[str, Path]
) -> None:
    async def scenario(one: Member, two: Member, *_: Bucket) -> None:
        await one.register("m:times1")
        await two.serves(1.0)
        await two.register("m:times2")
        await one.serves(2.0)
        await one.catalog.set_label("model", "stable", 1)
        await two.serves(1.0, version=1)
        await two.catalog.rollback("model")
        await one.serves(1.0)
        assert [entry["by"] for entry in one.catalog.history("model")] == ["registration", "registration", ""]
        await one.catalog.unload("model")
        await two.serves(None)
        await two.catalog.load("model")
        await one.serves(1.0)
        await one.catalog.delete("model")
        await two.serves(None)
        assert two.catalog.models() == []

    run(tmp_path, artifacts, scenario, "one", "two")


def test_what_is_built_on_several_servers_at_once_ends_with_the_newest_serving_everywhere(
    tmp_path: Path, artifacts: dict[str, Path]
) -> None:
    async def scenario(one: Member, two: Member, *_: Bucket) -> None:
        taken = await asyncio.gather(
            *(member.register(f"m:times{1 + number % 3}", wait=False) for number in range(2) for member in (one, two))
        )
        assert sorted(record.version for record in taken) == list(range(1, 5))
        await one.settle(lambda: len(one.catalog.models()) == len(two.catalog.models()) == 4)
        await one.settle(
            lambda: all(
                member.store.record("model", number).state is State.BUILT
                for member in (one, two)
                for number in range(1, 5)
            )
        )
        await one.settle(lambda: one.store.active("model") == two.store.active("model") == 4)
        await one.settle(lambda: one.state(4) is two.state(4) is State.AVAILABLE)
        assert await one.predict(1.0) == await two.predict(1.0)

    run(tmp_path, artifacts, scenario, "one", "two")


def test_a_server_that_loses_the_bucket_serves_what_it_has_says_so_and_catches_up(
    tmp_path: Path, artifacts: dict[str, Path]
) -> None:
    async def scenario(one: Member, two: Member, _: Severed, bucket: Severed) -> None:
        await one.register("m:times1")
        await two.serves(1.0)
        bucket.is_cut = True
        await two.settle(lambda: two.catalog.notes() != [])
        assert "the bucket can't be reached: it is cut off (since " in two.catalog.notes()[0]
        await one.register("m:times2")
        assert await two.predict(1.0) == 1.0
        assert two.catalog.readiness() == []
        with pytest.raises(StoreUnreachable):
            await two.catalog.register("model", ModelSpec(), ImportSource("m:times3"))
        bucket.is_cut = False
        await two.serves(2.0)
        assert two.catalog.notes() == []

    run(tmp_path, artifacts, scenario, "one", "two")
