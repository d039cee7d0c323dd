"""What a catalog makes of what the last one left, and how it stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from server.batching import Draining
from server.engine import ArtifactRefused
from server.store import Conflict, ModelNotFound, ModelNotReady, State, VersionNotLoaded
from tests.catalog.world import Server, World


def test_restarted_server_serves_what_was_active_without_building(server: Server) -> None:
    async def first(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2")
        await world.catalog.activate("model", 1)

    async def second(world: World) -> None:
        assert "is being loaded" in world.catalog.readiness()[0]
        await world.settle(lambda: not world.catalog.readiness())
        assert await world.predict(7.0) == 7.0
        record = await asyncio.wait_for(world.catalog.wait("model", 1), 60)
        assert (record.state, record.active) == (State.AVAILABLE, True)
        assert world.state(2) is State.UNLOADED

    server.run(first)
    assert server.run(second).builder.started == []


def test_what_was_active_is_not_ready_rather_than_unknown_before_it_is_known_what_to_load(server: Server) -> None:
    async def first(world: World) -> None:
        await world.register("m:times1")

    async def too_early(world: World) -> None:
        with pytest.raises(ModelNotReady) as raised:
            world.catalog.resolve("model")
        assert not isinstance(raised.value, VersionNotLoaded)

    server.run(first)
    server.run(too_early, starts=False)


def test_an_unloaded_model_stays_so_after_a_restart_and_load_brings_its_version_back(server: Server) -> None:
    async def first(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2")
        await world.catalog.activate("model", 1)
        assert (await world.catalog.unload("model")).state is State.UNLOADED
        with pytest.raises(VersionNotLoaded):
            world.catalog.resolve("model")
        assert (world.catalog.readiness(), world.catalog.serving()) == ([], [])
        assert world.announced[-1] == []

    async def second(world: World) -> None:
        assert world.catalog.readiness() == []
        with pytest.raises(VersionNotLoaded):
            world.catalog.resolve("model")
        record = await world.catalog.load("model")
        assert (record.version, record.state, record.active) == (1, State.AVAILABLE, True)
        assert await world.predict(7.0) == 7.0

    async def third(world: World) -> None:
        await world.settle(lambda: not world.catalog.readiness())
        assert await world.predict(7.0) == 7.0

    server.run(first)
    # It is expected by name too: that it was unloaded is the later word.
    assert server.run(second, expected={"model": "m:times3"}).builder.started == []
    server.run(third)


def test_a_model_without_a_built_version_can_not_be_loaded(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:refused")
        with pytest.raises(Conflict, match="no version of model 'model' is built: version 1 is FAILED"):
            await world.catalog.load("model")
        with pytest.raises(ModelNotFound):
            await world.catalog.unload("nobody")

    server.run(scenario)


def test_a_request_that_was_admitted_before_the_unload_is_answered(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times2")
        asked = [asyncio.create_task(world.predict(float(x))) for x in range(20)]
        await asyncio.sleep(0)
        await world.catalog.unload("model")
        assert await asyncio.gather(*asked) == [2.0 * x for x in range(20)]

    server.run(scenario)


def test_restart_with_a_damaged_active_version_says_so_and_serves_the_others(server: Server, tmp_path: Path) -> None:
    async def first(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2", name="other")

    async def second(world: World) -> None:
        await world.settle(lambda: not any("being loaded" in reason for reason in world.catalog.readiness()))
        assert await world.predict(2.0, name="other") == 4.0
        (reason,) = world.catalog.readiness()
        assert reason.startswith("model 'model': version 1 could not be loaded")
        with pytest.raises(ModelNotReady):
            world.catalog.resolve("model")
        with pytest.raises(ArtifactRefused):
            await world.catalog.activate("model", 1)
        await world.register("m:times3")
        assert world.catalog.readiness() == []

    server.run(first)
    (manifest,) = (tmp_path / "store" / "models" / "model").rglob("model.json")
    manifest.write_text(manifest.read_text().replace('"predict_1"', '"predict_0"'))
    server.run(second)


def test_build_that_was_under_way_at_the_stop_is_done_after_the_restart(server: Server) -> None:
    async def first(world: World) -> None:
        world.builder.gate(1)
        await world.register("m:times2", wait=False)
        waiting = asyncio.create_task(world.catalog.wait("model", 1))
        await world.settle(lambda: world.builder.started == [1])
        world.catalog.begin_drain()
        record = await waiting
        assert (record.state, "built when the server is started again" in record.reason) == (State.BUILDING, True)
        with pytest.raises(Draining):
            await world.register("m:times1", wait=False)

    async def second(world: World) -> None:
        assert world.catalog.readiness() == []
        assert (await world.catalog.wait("model", 1)).state is State.AVAILABLE
        assert await world.predict(3.0) == 6.0
        assert [record.version for record in world.catalog.models()] == [1]

    assert server.run(first).builder.cancelled == [1]
    assert server.run(second).builder.started == [1]


def test_expected_model_whose_build_was_cut_off_is_not_built_twice(server: Server) -> None:
    async def first(world: World) -> None:
        world.builder.gate(1)
        await world.settle(lambda: world.builder.started == [1])

    async def second(world: World) -> None:
        assert world.catalog.readiness() == ["model 'model': it is being built"]
        await world.settle(lambda: not world.catalog.readiness())
        assert await world.predict(2.0) == 6.0

    server.run(first, expected={"model": "m:times3"})
    assert server.run(second, expected={"model": "m:times3"}).builder.started == [1]


def test_version_that_was_built_and_not_switched_in_serves_after_the_restart(server: Server, tmp_path: Path) -> None:
    async def first(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2")
        # As if the server had ended between the commit of version 2 and its activation.
        world.store.activate("model", 1)

    async def second(world: World) -> None:
        await world.settle(lambda: world.state(2) is State.AVAILABLE)
        assert await world.predict(5.0) == 10.0
        await world.catalog.activate("model", 1)

    async def third(world: World) -> None:
        await world.settle(lambda: not world.catalog.readiness())
        # Who went back to an older version stays there.
        assert await world.predict(5.0) == 5.0
        assert world.state(2) is State.UNLOADED

    server.run(first)
    record = tmp_path / "store" / "models" / "model" / "2" / "record.json"
    record.write_text(record.read_text().replace('"awaits_switch": false', '"awaits_switch": true'))
    server.run(second)
    server.run(third)


def test_a_server_is_ready_as_soon_as_what_was_active_answers_whatever_else_waits_for_its_first_switch(
    server: Server, tmp_path: Path
) -> None:
    async def first(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2")
        await world.register("m:times3", name="new", activate=False)
        # As if the server had ended before version 2, and the first one of another model, were switched to.
        world.store.activate("model", 1)

    async def second(world: World) -> None:
        # What has never answered nobody waits for.
        assert world.catalog.readiness() == ["model 'model': version 1 is being loaded"]
        with pytest.raises(ModelNotReady) as raised:
            world.catalog.resolve("new")
        assert not isinstance(raised.value, VersionNotLoaded), "it will answer"
        await world.settle(lambda: not world.catalog.readiness())
        assert await world.predict(5.0) in {5.0, 10.0}
        await world.settle(lambda: world.state(2) is State.AVAILABLE and world.state(1, "new") is State.AVAILABLE)
        assert (await world.predict(5.0), await world.predict(5.0, name="new")) == (10.0, 15.0)

    server.run(first)
    for version in ("model/2", "new/1"):
        record = tmp_path / "store" / "models" / version / "record.json"
        record.write_text(record.read_text().replace('"awaits_switch": false', '"awaits_switch": true'))
    server.run(second)


def test_garbled_specification_is_said_and_the_others_serve(server: Server, tmp_path: Path) -> None:
    async def first(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2", name="other")

    async def second(world: World) -> None:
        await world.settle(lambda: not any("being loaded" in reason for reason in world.catalog.readiness()))
        (reason,) = world.catalog.readiness()
        assert "spec.json' is damaged: it is no specification" in reason
        assert await world.predict(2.0, name="other") == 4.0

    server.run(first)
    (tmp_path / "store" / "models" / "model" / "1" / "spec.json").write_text('{"buckets": "many"}')
    server.run(second)


def test_expected_model_is_registered_once_and_the_server_is_not_ready_before(server: Server) -> None:
    async def first(world: World) -> None:
        assert world.catalog.readiness() == ["model 'model': it is being built"]
        await world.settle(lambda: not world.catalog.readiness())
        assert await world.predict(2.0) == 6.0

    async def second(world: World) -> None:
        await world.settle(lambda: not world.catalog.readiness())
        assert await world.predict(2.0) == 6.0

    async def third(world: World) -> None:
        await world.settle(lambda: "Svd" in "".join(world.catalog.readiness()))

    assert server.run(first, expected={"model": "m:times3"}).builder.started == [1]
    assert server.run(second, expected={"model": "m:times3"}).builder.started == []
    server.run(third, expected={"wrong": "m:refused"})


def test_stopping_server_is_not_ready_and_admits_nothing(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        asked = [asyncio.create_task(world.predict(float(x))) for x in range(10)]
        await asyncio.sleep(0)
        await world.catalog.drain()
        assert await asyncio.gather(*asked) == [float(x) for x in range(10)]
        assert world.catalog.readiness() == ["the server is stopping"]
        with pytest.raises(Draining):
            await world.predict(1.0)

    server.run(scenario)


def test_what_is_activated_right_after_the_start_is_not_undone_by_what_was_active_before(server: Server) -> None:
    async def first(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2")

    async def second(world: World) -> None:
        await world.catalog.activate("model", 1)
        await world.settle(lambda: world.catalog.readiness() == [])
        await asyncio.sleep(0)
        assert world.store.active("model") == 1
        assert await world.predict(5.0) == 5.0

    server.run(first)
    server.run(second)
