"""The catalog over a real store and a real engine; only the builder is a double."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from server.batching import ModelUnloaded, TooManyRows
from server.build import ImportSource, JailIncomplete
from server.engine import EngineError
from server.protocol import Rows
from server.spec import ModelSpec
from server.store import (
    Conflict,
    InvalidName,
    ModelNotFound,
    ModelNotReady,
    State,
    Store,
    VersionNotFound,
    VersionNotLoaded,
)
from tests.catalog.world import Server, World


def test_registered_model_is_built_loaded_and_answers(server: Server) -> None:
    async def scenario(world: World) -> None:
        assert world.catalog.readiness() == []
        gate = world.builder.gate(1)
        record = await world.register("m:times2", wait=False)
        assert (record.version, record.state, record.active) == (1, State.BUILDING, False)
        with pytest.raises(ModelNotReady, match="it is being built"):
            world.catalog.resolve("model")
        await world.settle(lambda: world.catalog.version("model", 1).progress is not None)
        assert world.catalog.version("model", 1).progress == {"stage": "check", "done": 1, "total": 4}
        with pytest.raises(Conflict):
            world.catalog.certificate("model")
        gate.set()
        record = await world.catalog.wait("model", 1)
        assert (record.state, record.active, record.progress) == (State.AVAILABLE, True, None)
        assert await world.predict(3.0) == 6.0
        assert await asyncio.gather(*(world.predict(float(x)) for x in range(50))) == [2.0 * x for x in range(50)]
        assert json.loads(world.catalog.certificate("model")) == {"factor": 2}
        assert json.loads(world.catalog.costs("model", 1)) == {"costs": 2}

    assert server.run(scenario).builds == [("model", "available")]


def test_what_this_machine_does_not_build_makes_no_version(server: Server) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(JailIncomplete):
            await world.register("m:unjailed")
        assert world.catalog.models() == []
        assert (await world.register("m:times1")).version == 1

    assert server.run(scenario).builds == [("model", "available")]


def test_unknown_names_and_versions_are_told_apart(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        for ask in (world.catalog.resolve, world.catalog.versions, world.catalog.certificate):
            with pytest.raises(ModelNotFound):
                ask("other")
            with pytest.raises(InvalidName):
                ask("../model")
        with pytest.raises(VersionNotFound):
            world.catalog.resolve("model", 9)
        for change in (world.catalog.activate("model", 9), world.catalog.delete("model", 9)):
            with pytest.raises(VersionNotFound):
                await change
        with pytest.raises(ModelNotFound):
            await world.catalog.delete("other")
        with pytest.raises(InvalidName):
            await world.register("m:times1", name="a/b")

    server.run(scenario)


def test_new_version_takes_over_and_the_old_one_can_be_activated_again(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        old = world.catalog.resolve("model")
        await world.register("m:times2")
        assert await world.predict(5.0) == 10.0
        await world.settle(lambda: world.state(1) is State.UNLOADED)
        with pytest.raises(ModelUnloaded):
            old.predict(Rows(1, (np.zeros(1, np.float32),)), timeout_s=None, on_done=lambda answer: None)
        with pytest.raises(VersionNotLoaded, match="activate it"):
            world.catalog.resolve("model", 1)

        record = await world.catalog.activate("model", 1)
        assert (record.state, record.active) == (State.AVAILABLE, True)
        assert await world.predict(5.0) == 5.0
        assert await world.predict(5.0, version=1) == 5.0
        await world.settle(lambda: world.state(2) is State.UNLOADED)
        # To and fro without a pause: the last one counts, and none is shown as unloaded that serves.
        for version in (2, 1, 2, 1, 2):
            await world.catalog.activate("model", version)
        assert await world.predict(5.0) == 10.0
        await world.settle(lambda: world.state(1) is State.UNLOADED)
        assert world.state(2) is State.AVAILABLE
        assert (await world.catalog.wait("model", 1)).state is State.UNLOADED

    server.run(scenario)


def test_bounds_that_change_hold_for_what_serves_already(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        record = await world.catalog.register("own", ModelSpec(queue=7, default_timeout_ms=9), ImportSource("m:times2"))
        await world.catalog.wait("own", record.version)
        world.catalog.change_defaults(queue_rows=5, default_timeout_s=2.5)
        await world.register("m:times3", name="later")
        bounds = {
            hosted.model.name: ({group.quota.max_rows for group in hosted.groups if group.quota}, hosted.model)
            for hosted in world.host._hosted
        }
        assert {name: (rows, model.default_timeout_s) for name, (rows, model) in bounds.items()} == {
            "model": ({5}, 2.5),
            "own": ({7}, 0.009),
            "later": ({5}, 2.5),
        }
        with pytest.raises(TooManyRows):
            world.catalog.resolve("model").predict(
                Rows(6, (np.zeros(6, np.float32),)), timeout_s=None, on_done=lambda answer: None
            )
        assert await world.predict(2.0) == 2.0

    server.run(scenario)


def test_switching_under_load_fails_no_request(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2")
        stop = asyncio.Event()
        answers: list[float] = []

        async def caller() -> None:
            while not stop.is_set():
                answers.append(await world.predict(1.0))

        callers = [asyncio.create_task(caller()) for _ in range(8)]
        for version in (1, 2, 1, 2):
            await world.catalog.activate("model", version)
        stop.set()
        await asyncio.gather(*callers)
        assert set(answers) == {1.0, 2.0}

    server.run(scenario)


def test_failed_build_keeps_the_old_version_and_says_why(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        record = await world.register("m:refused")
        assert (record.version, record.state, record.reason) == (2, State.FAILED, "op Svd has no converter")
        assert await world.predict(4.0) == 4.0
        assert world.catalog.readiness() == []
        with pytest.raises(ModelNotReady, match="op Svd has no converter"):
            world.catalog.resolve("model", 2)
        with pytest.raises(Conflict, match="op Svd"):
            await world.catalog.activate("model", 2)
        assert world.state(2) is State.FAILED
        assert await world.predict(4.0) == 4.0

    assert server.run(scenario).builds == [("model", "available"), ("model", "BuildFailed")]


def test_version_that_cannot_be_loaded_keeps_the_old_one_serving(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        record = await world.register("m:damaged")
        assert record.state is State.FAILED
        assert "DataLoss" in record.reason or "Error" in record.reason
        assert await world.predict(4.0) == 4.0
        with pytest.raises(EngineError):
            await world.catalog.activate("model", 2)
        assert (await world.catalog.wait("model", 2)).state is not State.AVAILABLE
        assert await world.predict(4.0) == 4.0
        assert world.catalog.version("model", 1).active

    server.run(scenario)


def test_older_registration_that_finishes_later_does_not_take_over(server: Server) -> None:
    async def scenario(world: World) -> None:
        gate = world.builder.gate(1)
        await world.register("m:times1", wait=False)
        assert (await world.register("m:times2")).state is State.AVAILABLE
        gate.set()
        record = await world.catalog.wait("model", 1)
        assert (record.state, record.active) == (State.BUILT, False)
        assert await world.predict(5.0) == 10.0
        await world.catalog.activate("model", 1)
        assert await world.predict(5.0) == 5.0

    server.run(scenario)


def test_model_is_deleted_while_it_serves_and_its_running_requests_are_answered(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2")
        with pytest.raises(Conflict, match="active one"):
            await world.catalog.delete("model", 2)
        assert await world.predict(2.0) == 4.0
        asked = [asyncio.create_task(world.predict(float(x))) for x in range(20)]
        await asyncio.sleep(0)
        await world.catalog.delete("model")
        assert await asyncio.gather(*asked) == [2.0 * x for x in range(20)]
        with pytest.raises(ModelNotFound):
            world.catalog.resolve("model")
        assert world.catalog.models() == []
        assert (await world.register("m:times3")).version == 3
        assert await world.predict(2.0) == 6.0

    server.run(scenario)


def test_version_that_does_not_serve_is_deleted_alone(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        await world.register("m:times2")
        await world.catalog.delete("model", 1)
        assert [record.version for record in world.catalog.versions("model")] == [2]
        with pytest.raises(VersionNotFound):
            await world.catalog.activate("model", 1)
        assert await world.predict(2.0) == 4.0

    server.run(scenario)


def test_deleting_what_is_being_built_stops_the_build_and_wakes_who_waits(server: Server) -> None:
    async def scenario(world: World) -> None:
        await world.register("m:times1")
        world.builder.gate(2)
        await world.register("m:times2", wait=False)
        waiting = asyncio.create_task(world.catalog.wait("model", 2))
        await world.settle(lambda: world.builder.started == [1, 2])
        await world.catalog.delete("model", 2)
        assert world.builder.cancelled == [2]
        with pytest.raises(VersionNotFound):
            await waiting
        with pytest.raises(VersionNotFound):
            world.catalog.version("model", 2)
        assert await world.predict(2.0) == 2.0

    assert server.run(scenario).builds[-1] == ("model", "cancelled")


def test_a_build_that_leaves_no_model_fails_without_a_path_of_the_server_s(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        async def leave_nothing(*_: object) -> None:
            return None

        monkeypatch.setattr(world.builder, "build", leave_nothing)
        record = await world.register("m:times1")
        assert record.state is State.FAILED
        assert record.reason.startswith("what the build has left is no model: ")
        assert "/" not in record.reason

    server.run(scenario)


def test_a_reason_commands_no_terminal_and_forges_no_line_of_the_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """What was handed in speaks in its reason, and people read it in logs and commands."""

    async def scenario(world: World) -> None:
        record = await world.register("m:escapes")
        assert record.reason == "\\x1b[2Jowned\\r\\u202e\\ud800\n2026-01-01 WARNING all is well"

    server.run(scenario)
    (line,) = [each.getMessage() for each in caplog.records if "failed" in each.getMessage()]
    assert "\x1b" not in line
    assert "\n    2026-01-01 WARNING" in line


def test_fifty_registrations_of_one_name_at_once_all_end_and_none_is_lost(server: Server) -> None:
    async def scenario(world: World) -> None:
        targets = ["m:refused" if number % 7 == 3 else f"m:times{1 + number % 3}" for number in range(50)]
        # One in five is to serve: loading takes longest.
        wanted = [number % 5 == 0 for number in range(50)]
        taken = await asyncio.gather(
            *(
                world.register(target, wait=False, activate=serves)
                for target, serves in zip(targets, wanted, strict=True)
            )
        )
        assert sorted(record.version for record in taken) == list(range(1, 51))
        ended = await asyncio.gather(*(world.catalog.wait("model", record.version) for record in taken))
        for target, record in zip(targets, ended, strict=True):
            is_refused = target == "m:refused"
            assert (record.state is State.FAILED) == is_refused
            assert bool(record.reason) == is_refused
        # Those that newer ones overtook were built all the same; the newest that could be built serves.
        assert len(world.catalog.versions("model")) == 50
        newest = max(
            (record.version, target)
            for target, serves, record in zip(targets, wanted, taken, strict=True)
            if serves and target != "m:refused"
        )
        await world.settle(lambda: world.store.active("model") == newest[0])
        await world.settle(lambda: sum(world.state(number) is State.AVAILABLE for number in range(1, 51)) == 1)
        assert await world.predict(5.0) == 5.0 * float(newest[1][-1])
        assert [entry["version"] for entry in world.catalog.history("model")] == sorted(
            entry["version"] for entry in world.catalog.history("model")
        )

    world = server.run(scenario)
    assert len(world.builds) == 50
    with Store.open(world.store._layout.root, verify=True) as again:
        assert again.damage == ()
        assert [record.version for record in again.versions("model")] == list(range(1, 51))
