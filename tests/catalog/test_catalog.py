"""The catalog over a real store and a real engine; only the builder is a double."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from server.artifact import CERTIFICATE_FILE, COSTS_FILE, SAVED_MODEL_DIR, CompiledGraph, ExecutionMode, Manifest
from server.batching import ModelUnloaded, QueueLimits
from server.build import BuildFailed, ImportSource
from server.catalog import Catalog
from server.catalog_options import CatalogOptions
from server.engine import ArtifactRefused, EngineError
from server.hosting import Host
from server.protocol import Rows
from server.serving import Answer
from server.signature import ModelSignature, TensorSignature
from server.spec import ModelSpec
from server.store import Conflict, InvalidName, ModelNotFound, ModelNotReady, State, Store, VersionNotFound
from tests.catalog.doubles import ScriptedBuilder

SIGNATURE = ModelSignature(
    inputs=(TensorSignature(name="x", dtype="float32", shape=()),),
    outputs=(TensorSignature(name="y", dtype="float32", shape=()),),
)
MODE = ExecutionMode(compiler="graph", executor="single_threaded", intra_op_threads=1)
Scenario = Callable[["World"], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that multiply by 1, 2 and 3, and one that TensorFlow can't load."""
    made = {}
    for factor in (1, 2, 3):
        path = tmp_path_factory.mktemp(f"times{factor}")
        graphs = {
            f"predict_{rows}": tf.function(lambda x, factor=factor: {"y": x * float(factor)}).get_concrete_function(
                x=tf.TensorSpec([rows], tf.float32, name="x")
            )
            for rows in (1, 4)
        }
        tf.saved_model.save(tf.Module(), str(path / SAVED_MODEL_DIR), signatures=graphs)
        Manifest(
            name="",
            version=0,
            signature=SIGNATURE,
            entries={
                "predict": tuple(
                    CompiledGraph(rows=rows, lengths=(), signature=f"predict_{rows}", mode=MODE, cost_s=1e-4)
                    for rows in (1, 4)
                )
            },
            tensorflow_version=tf.__version__,
            built_at="2020-01-01T00:00:00+00:00",
        ).write(path)
        (path / CERTIFICATE_FILE).write_text(json.dumps({"factor": factor}))
        (path / COSTS_FILE).write_text(json.dumps({"costs": factor}))
        made[f"m:times{factor}"] = path
    damaged = tmp_path_factory.mktemp("damaged")
    manifest = Manifest.read(made["m:times1"])
    manifest.write(damaged)
    (damaged / SAVED_MODEL_DIR).mkdir()
    (damaged / SAVED_MODEL_DIR / "saved_model.pb").write_bytes(b"\xff")
    made["m:damaged"] = damaged
    return made


class World:
    """One server's catalog, from start to stop."""

    def __init__(self, root: Path, artifacts: dict[str, Path], expected: dict[str, str]) -> None:
        self.builds: list[tuple[str, str]] = []
        self.builder = ScriptedBuilder(
            artifacts, {"m:refused": BuildFailed("LoopedOpError", "op Svd has no converter")}
        )
        self.host = Host(limits=QueueLimits(max_rows=100))
        self.store = Store.open(root)
        self.catalog = Catalog(
            store=self.store,
            builder=self.builder,  # type: ignore[arg-type]
            host=self.host,
            options=CatalogOptions(
                import_packages=("m",), batch_limit=None, queue_rows=100, default_timeout_s=30.0, expected=expected
            ),
            on_build=lambda model, result: self.builds.append((model, result)),
        )

    async def register(self, target: str, *, name: str = "model", wait: bool = True) -> Any:
        record = await self.catalog.register(name, ModelSpec(), ImportSource(target))
        return await self.catalog.wait(name, record.version) if wait else record

    async def predict(self, x: float, *, name: str = "model", version: int | None = None) -> float:
        """Ask for one row; an error is raised."""
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        handle = self.catalog.resolve(name, version)
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

    def run(self, scenario: Scenario, *, expected: dict[str, str] | None = None) -> World:
        async def serve() -> World:
            world = World(self._root, self._artifacts, expected or {})
            world.host.start()
            try:
                await world.catalog.start()
                await scenario(world)
            finally:
                await world.catalog.drain()
                await world.host.aclose()
                world.store.close()
            return world

        return asyncio.run(serve())


@pytest.fixture
def server(tmp_path: Path, artifacts: dict[str, Path]) -> Server:
    return Server(tmp_path / "store", artifacts)


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
        with pytest.raises(ModelNotReady, match="activate it"):
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
        record = await waiting
        assert (record.state, record.reason) == (State.FAILED, "the build was cancelled")
        with pytest.raises(VersionNotFound):
            world.catalog.version("model", 2)
        assert await world.predict(2.0) == 2.0

    assert server.run(scenario).builds[-1] == ("model", "cancelled")


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


def test_build_that_was_under_way_at_the_stop_is_failed_after_the_restart(server: Server) -> None:
    async def first(world: World) -> None:
        world.builder.gate(1)
        await world.register("m:times1", wait=False)
        await world.settle(lambda: world.builder.started == [1])

    async def second(world: World) -> None:
        assert world.state(1) is State.FAILED
        assert world.catalog.readiness() == []

    assert server.run(first).builder.cancelled == [1]
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
        from server.batching import Draining

        with pytest.raises(Draining):
            await world.predict(1.0)

    server.run(scenario)
