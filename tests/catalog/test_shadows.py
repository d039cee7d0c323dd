"""Shadows over a real engine: a version that runs on live batches and answers nobody."""

from __future__ import annotations

import asyncio

import pytest

from server.store import Conflict, State, VersionNotFound, VersionNotLoaded
from tests.catalog.world import Server, World


async def ask(world: World, n: int) -> list[float]:
    return list(await asyncio.gather(*(world.predict(float(x)) for x in range(n))))


def test_shadow_runs_on_live_batches_and_callers_have_the_serving_versions_answers(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        with pytest.raises(Conflict, match="serves: it can't be its own shadow"):
            await world.catalog.set_shadow("model", 1, 1.0)
        await world.register("m:times2")
        with pytest.raises(Conflict, match="is no shadow"):
            world.catalog.shadow("model", 1)
        with pytest.raises(VersionNotFound):
            await world.catalog.set_shadow("model", 9, 1.0)

        report = await world.catalog.set_shadow("model", 1, 1.0)
        assert (report["version"], report["share"], report["batches"]) == (1, 1.0, 0)
        for _ in range(5):
            assert await ask(world, 6) == [2.0 * x for x in range(6)]
            await world.settle(lambda: world.host.shadows._running is None)
        report = world.catalog.shadow("model", 1)
        assert report["rows"] > 0
        assert report["failed"] == 0
        assert 0 < report["rows_differing"] < report["rows"], "only 0 is the same doubled"
        assert report["outputs"]["y"]["max_abs"] > 0
        assert world.catalog.version("model", 1).shadow == report
        assert world.catalog.version("model", 2).shadow is None

        ended = await world.catalog.set_shadow("model", 1, 0.0)
        assert (ended["share"], ended["rows"]) == (0.0, report["rows"])
        with pytest.raises(Conflict, match="is no shadow"):
            world.catalog.shadow("model", 1)

    server.run(scenario)


def test_a_version_that_never_served_runs_as_a_shadow_stays_at_rest_over_a_restart_and_serves_once_activated(
    server: Server,
) -> None:
    async def first(world: World) -> None:
        await world.register("m:times1")
        assert (await world.register("m:times2", activate=False)).state is State.BUILT
        assert await ask(world, 3) == [0.0, 1.0, 2.0]
        await world.catalog.set_shadow("model", 2, 1.0)
        assert await ask(world, 6) == [float(x) for x in range(6)]
        await world.settle(lambda: world.catalog.shadow("model", 2)["rows"] > 0)
        with pytest.raises(VersionNotLoaded):
            world.catalog.resolve("model", 2)

    async def second(world: World) -> None:
        await world.settle(lambda: not world.catalog.readiness())
        assert world.catalog.version("model", 2).state is State.UNLOADED
        assert await ask(world, 3) == [0.0, 1.0, 2.0]
        await world.catalog.activate("model", 2)
        assert await ask(world, 3) == [0.0, 2.0, 4.0]

    server.run(first)
    server.run(second)


def test_shadow_that_comes_to_serve_or_is_deleted_is_one_no_longer(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2")
        await world.register("m:times3")
        await world.catalog.set_shadow("model", 1, 0.5)
        with pytest.raises(Conflict, match="version 1 is the shadow"):
            await world.catalog.set_shadow("model", 2, 0.5)
        # A switch to another version of the same signature leaves it as it is.
        await world.catalog.activate("model", 2)
        assert world.catalog.shadow("model", 1)["share"] == 0.5
        await world.catalog.activate("model", 1)
        assert world.catalog.version("model", 1).shadow is None
        assert await world.predict(5.0) == 5.0
        await world.catalog.set_shadow("model", 3, 1.0)
        await world.catalog.delete("model", 3)
        assert await world.predict(5.0) == 5.0
        await world.settle(lambda: world.state(2) is State.UNLOADED)
        await world.catalog.set_shadow("model", 2, 1.0)
        await world.catalog.delete("model")
        assert not world.host.shadows.any

    server.run(scenario)
