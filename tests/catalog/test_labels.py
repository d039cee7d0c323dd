"""Labels lead to versions that answer, whatever is switched; rolling back goes by the history."""

from __future__ import annotations

import asyncio

import pytest

from server.batching import ModelUnloaded
from server.engine import EngineError
from server.serving import ServedModel
from server.store import Conflict, State, VersionNotLoaded
from tests.catalog.world import Server, World


async def three(world: World) -> None:
    """Versions 1, 2 and 3, which multiply by their numbers; 3 serves."""
    for factor in (1, 2, 3):
        await world.register(f"m:times{factor}")
    await world.settle(lambda: world.state(1) is world.state(2) is State.UNLOADED)


def test_a_labelled_version_answers_beside_the_active_one_and_through_switches(server: Server) -> None:
    async def scenario(world: World) -> None:
        await three(world)
        record = await world.catalog.set_label("model", "stable", 1)
        assert (record.state, record.active, dict(record.labels)) == (State.AVAILABLE, False, {"stable": ""})
        assert [await world.predict(5.0, version=version) for version in (None, 1, 3)] == [15.0, 5.0, 15.0]
        stable = world.catalog.resolve("model", 1)
        await world.catalog.activate("model", 2)
        await world.catalog.activate("model", 1)
        assert world.catalog.resolve("model", 1) is stable, "it was loaded already"
        assert await world.predict(5.0) == 5.0
        await world.catalog.activate("model", 3)
        assert world.catalog.resolve("model", 1) is stable, "its label holds it"
        assert await world.ask(stable, 7.0) == 7.0
        assert world.catalog.labels("model") == {"stable": 1}

    server.run(scenario)


def test_a_label_moves_when_the_version_is_warm_and_what_nobody_leads_to_is_unloaded(server: Server) -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.catalog.set_label("model", "stable", 1)
        old = world.catalog.resolve("model", 1)
        await world.catalog.set_label("model", "stable", 2)
        await world.settle(lambda: world.state(1) is State.UNLOADED)
        with pytest.raises(ModelUnloaded):
            await world.ask(old, 5.0)
        with pytest.raises(VersionNotLoaded):
            world.catalog.resolve("model", 1)
        await world.catalog.set_label("model", "canary", 2)
        await world.catalog.remove_label("model", "stable")
        assert await world.predict(5.0, version=2) == 10.0
        await world.catalog.remove_label("model", "canary")
        await world.settle(lambda: world.state(2) is State.UNLOADED)
        assert await world.predict(5.0) == 15.0

    server.run(scenario)


def test_no_request_by_label_fails_while_everything_is_switched(server: Server) -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.catalog.set_label("model", "stable", 1)
        answers: list[float] = []
        stop = asyncio.Event()

        def by_label() -> ServedModel:
            return world.catalog.resolve("model", world.catalog.labels("model")["stable"])

        async def ask() -> None:
            while not stop.is_set():
                answers.append(await world.ask(by_label(), 1.0))
                await asyncio.sleep(0)

        asking = asyncio.create_task(ask())
        for version in (2, 1, 3, 1, 2):
            await world.catalog.activate("model", version)
        await world.catalog.set_label("model", "stable", 2)
        await world.catalog.activate("model", 3)
        stop.set()
        await asking
        assert set(answers) == {1.0, 2.0}
        assert answers == sorted(answers)

    server.run(scenario)


def test_labels_lead_to_loaded_versions_after_a_restart(server: Server) -> None:
    async def first(world: World) -> None:
        await three(world)
        await world.catalog.set_label("model", "stable", 1)
        await world.catalog.set_label("model", "latest", 3)

    async def second(world: World) -> None:
        await world.settle(lambda: world.catalog.readiness() == [])
        assert [await world.predict(5.0, version=version) for version in (None, 1)] == [15.0, 5.0]
        await world.catalog.unload("model")
        with pytest.raises(VersionNotLoaded):
            world.catalog.resolve("model", 1)
        with pytest.raises(VersionNotLoaded):
            world.catalog.resolve("model", 3)

    async def third(world: World) -> None:
        await world.settle(lambda: world.catalog.readiness() == [])
        with pytest.raises(VersionNotLoaded):
            world.catalog.resolve("model", 1)
        await world.catalog.load("model")
        assert [await world.predict(5.0, version=version) for version in (None, 1)] == [15.0, 5.0]

    server.run(first)
    server.run(second)
    server.run(third)


def test_a_version_that_can_not_be_loaded_gets_no_label(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        await world.catalog.set_label("model", "stable", 1)
        record = await world.register("m:damaged", activate=False)
        with pytest.raises(EngineError):
            await world.catalog.set_label("model", "stable", record.version)
        assert world.catalog.labels("model") == {"stable": 1}
        assert await world.predict(5.0, version=1) == 5.0
        await world.register("m:times2", activate=False)
        await world.catalog.set_label("model", "canary", 3)
        with pytest.raises(Conflict, match="answers by a label"):
            await world.catalog.set_shadow("model", 3, 0.5)

    server.run(scenario)


def test_a_model_is_deleted_with_what_its_labels_hold(server: Server) -> None:
    async def scenario(world: World) -> None:
        await three(world)
        await world.catalog.set_label("model", "stable", 1)
        with pytest.raises(Conflict, match="the label 'stable' leads to version 1"):
            await world.catalog.delete("model", 1)
        held = world.catalog.resolve("model", 1)
        await world.catalog.delete("model")
        with pytest.raises(ModelUnloaded):
            await world.ask(held, 5.0)
        assert world.host._hosted == []

    server.run(scenario)


def test_a_label_without_an_active_version_leads_to_one_that_answers(server: Server) -> None:
    async def first(world: World) -> None:
        await world.register("m:times2", activate=False)
        await world.catalog.set_label("model", "canary", 1)
        assert await world.predict(5.0, version=1) == 10.0

    async def second(world: World) -> None:
        await world.settle(lambda: world.catalog.readiness() == [])
        assert await world.predict(5.0, version=1) == 10.0

    server.run(first)
    server.run(second)


def test_rolling_back_goes_to_what_answered_before_and_says_who_did_what(server: Server) -> None:
    async def first(world: World) -> None:
        await three(world)
        assert (await world.catalog.rollback("model", by="ann")).version == 2
        assert await world.predict(5.0) == 10.0

    async def second(world: World) -> None:
        assert (await world.catalog.rollback("model", by="bob")).version == 1
        with pytest.raises(Conflict, match="nothing to roll back to"):
            await world.catalog.rollback("model")
        assert await world.predict(5.0) == 5.0
        assert [(entry["version"], entry["by"]) for entry in world.catalog.history("model")] == [
            (1, "registration"),
            (2, "registration"),
            (3, "registration"),
            (2, "ann"),
            (1, "bob"),
        ]

    server.run(first)
    server.run(second)
