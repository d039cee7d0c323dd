"""Telling other processes what serves: before it is unloaded, whatever it was that changed."""

from __future__ import annotations

import pytest

from server.batching import ModelUnloaded
from server.serving_versions import labels_leading_to
from server.store import State, VersionRecord
from tests.catalog.world import Server, World


def test_what_served_goes_on_answering_until_everybody_was_told_of_the_switch(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        assert world.announced[-1] == [("model", 1)]
        old = world.catalog.resolve("model")
        answered: list[float] = []

        async def ask_the_old_one() -> None:
            if world.announced[-1] == [("model", 2)]:
                answered.append(await world.ask(old, 5.0))

        world.on_announce = ask_the_old_one
        await world.register("m:times2")
        await world.settle(lambda: world.state(1) is State.UNLOADED)
        assert answered
        assert set(answered) == {5.0}
        with pytest.raises(ModelUnloaded):
            await world.ask(old, 5.0)

    server.run(scenario)


def test_a_deleted_model_is_gone_for_everybody_before_it_is_unloaded(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        handle = world.catalog.resolve("model")
        answered: list[float] = []

        async def ask() -> None:
            answered.append(await world.ask(handle, 5.0))

        world.on_announce = ask
        await world.catalog.delete("model")
        assert world.announced[-1] == []
        assert answered == [5.0]

    server.run(scenario)


def test_activating_is_over_when_everybody_was_told(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2")
        world.announced.clear()
        await world.catalog.activate("model", 1)
        assert world.announced[0] == [("model", 1)]

    server.run(scenario)


def test_a_label_leads_to_the_newest_version_that_carries_it() -> None:
    def version(number: int, *labels: str) -> VersionRecord:
        return VersionRecord(model="m", version=number, state=State.BUILT, labels=dict.fromkeys(labels, ""))

    versions = [version(3, "canary"), version(1, "stable", "old"), version(2, "stable")]
    assert [labels_leading_to(number, versions) for number in (1, 2, 3)] == [["old"], ["stable"], ["canary"]]
