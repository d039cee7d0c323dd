"""Old versions go by themselves, and never one that somebody needs."""

from __future__ import annotations

from server.store import State
from tests.catalog.world import Server, World


def there(world: World) -> list[int]:
    return [record.version for record in world.catalog.versions("model")]


def test_the_newest_are_kept_and_what_is_active_or_labelled(server: Server) -> None:
    async def scenario(world: World) -> None:
        for _ in range(3):
            await world.register("m:times1")
        await world.settle(lambda: there(world) == [2, 3])
        await world.catalog.set_label("model", "stable", 2)
        for _ in range(3):
            await world.register("m:times2")
        await world.settle(lambda: there(world) == [2, 5, 6])
        assert await world.predict(1.0, version=2) == 1.0
        await world.catalog.activate("model", 2)
        for _ in range(2):
            await world.register("m:times3", activate=False)
        await world.settle(lambda: there(world) == [2, 7, 8])
        assert await world.predict(1.0) == 1.0

    server.run(scenario, keep=2)


def test_failed_builds_are_kept_as_many(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        for _ in range(3):
            assert (await world.register("m:refused")).state is State.FAILED
        await world.settle(lambda: there(world) == [1, 4])
        assert await world.predict(1.0) == 1.0

    server.run(scenario, keep=1)


def test_a_shadow_and_a_build_under_way_are_not_deleted(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2", activate=False)
        await world.catalog.set_shadow("model", 2, 0.5)
        gate = world.builder.gate(3)
        await world.register("m:times1", activate=False, wait=False)
        for _ in range(2):
            await world.register("m:times3", activate=False, wait=False)
        await world.settle(lambda: world.builder.started[-1] == 5)
        await world.catalog.wait("model", 5)
        gate.set()
        await world.catalog.wait("model", 3)
        await world.settle(lambda: there(world) == [1, 2, 5])
        assert world.catalog.shadow("model", 2)["version"] == 2

    server.run(scenario, keep=1)


def test_without_the_setting_everything_is_kept(server: Server) -> None:
    async def scenario(world: World) -> None:
        for _ in range(4):
            await world.register("m:times1")
        assert there(world) == [1, 2, 3, 4]

    server.run(scenario)
