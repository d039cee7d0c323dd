"""The stream of events: one snapshot for all, as many viewers as may, and its ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from server.metrics import Metrics
from server.rights import Grant, Scope
from server.store.records import State
from server.web.console.live import Live
from server.web.errors import ViewersFull
from tests.web.rights import bearer, tokens
from tests.web.scripted import REMOTE, ScriptedBatches, ScriptedCatalog, Service
from tests.web.scripted_model import ScriptedModel
from tests.web.wire import Wire

ALL = Grant("all", Scope)


class Seconds:
    """A clock that moves when it is told to, and the pause that waits for it."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._waiting: list[asyncio.Future[None]] = []

    async def pause(self, seconds: float) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    async def pass_one(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        self.now_s += 1.0
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.set_result(None)
        for _ in range(3):
            await asyncio.sleep(0)


class World:
    """A live console over doubles."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.catalog = ScriptedCatalog(directory)
        self.catalog.serve(ScriptedModel("sum", 3))
        self.metrics = Metrics(process=False)
        self.batches = ScriptedBatches()
        self.seconds = Seconds()
        self.waiting: list[tuple[str, int, str, int]] = []
        self.n_readings = 0
        self.live = Live(
            self.catalog,
            self.metrics,
            self.batches,
            lambda: self.waiting,
            clock=self.clock,
            pause=self.seconds.pause,
            **options,
        )

    def clock(self) -> float:
        self.n_readings += 1
        return self.seconds.now_s


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def parsed(data: bytes) -> list[tuple[str, Any]]:
    events = []
    for event in data.decode().split("\n\n")[:-1]:
        name, text = event.split("\n")
        events.append((name.removeprefix("event: "), json.loads(text.removeprefix("data: "))))
    return events


async def begun(live: Live, grant: Grant = ALL) -> tuple[AsyncIterator[bytes], Any]:
    """Return a stream whose viewer has seen what there is."""
    stream = live.follow(grant)
    ((name, value),) = parsed(await anext(stream))
    assert name == "models"
    await anext(stream)  # the last minute
    await asyncio.sleep(0)  # the first reading
    return stream, value


def test_a_viewer_sees_what_there_is_and_then_each_second(world: World) -> None:
    async def run() -> None:
        stream, first = await begun(world.live)
        assert [record["model"] for record in first["models"]] == ["sum"]
        assert first["ready"] is True
        for n_rows in (4, 9):
            world.metrics.of_version("sum", 3).batch(n_rows=n_rows, bucket=16, compute_s=0.1)
            waiting = asyncio.ensure_future(anext(stream))
            await world.seconds.pass_one()
            ((name, snapshot),) = parsed(await waiting)
            assert (name, snapshot["total"]["rows_per_s"]) == ("snapshot", n_rows)
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_models_are_told_again_when_they_have_changed_and_not_before(world: World) -> None:
    async def run() -> None:
        stream, _ = await begun(world.live)
        seen = []
        for change in (None, State.BUILDING, None):
            if change is not None:
                world.catalog.add(
                    "sum", 4, change, reason="<b>bold</b>", progress={"stage": "convert", "done": 1, "total": 3}
                )
            waiting = asyncio.ensure_future(anext(stream))
            await world.seconds.pass_one()
            events = parsed(await waiting)
            if events[0][0] == "models":
                assert events[0][1]["models"][1]["reason"] == "<b>bold</b>"
                events += parsed(await anext(stream))
            seen.append([name for name, _ in events])
        assert seen == [["snapshot"], ["models", "snapshot"], ["snapshot"]]
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_a_second_is_read_once_however_many_look_and_not_at_all_when_nobody_does(world: World) -> None:
    async def run() -> None:
        streams = [(await begun(world.live))[0] for _ in range(5)]
        waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await world.seconds.pass_one()
        texts = [await one for one in waiting]
        assert len(set(texts)) == 1
        assert world.n_readings == 2, "one to begin with, one a second later"
        assert world.batches.keeps == [True]
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]
        await world.seconds.pass_one()
        await world.seconds.pass_one()
        assert world.n_readings == 2
        assert world.batches.keeps == [True, False]
        assert world.live.n_viewers == 0

    asyncio.run(run())


def test_who_comes_later_is_shown_what_others_saw(world: World) -> None:
    async def run() -> None:
        first, _ = await begun(world.live)
        for _ in range(2):
            waiting = asyncio.ensure_future(anext(first))
            await world.seconds.pass_one()
            await waiting
        second = world.live.follow(ALL)
        await anext(second)
        history = parsed(await anext(second))
        assert [value["at_s"] for _, value in history] == [101.0, 102.0]
        for stream in (first, second):
            await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_a_slow_viewer_misses_seconds_and_gets_the_newest(world: World) -> None:
    async def run() -> None:
        stream, _ = await begun(world.live)
        quick, _ = await begun(world.live)
        for _ in range(3):
            waiting = asyncio.ensure_future(anext(quick))
            await world.seconds.pass_one()
            await waiting
        waiting = asyncio.ensure_future(anext(stream))
        await world.seconds.pass_one()
        ((_, snapshot),) = parsed(await waiting)
        assert snapshot["at_s"] == 104.0
        for one in (stream, quick):
            await one.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_only_so_many_may_watch(tmp_path: Path) -> None:
    world = World(tmp_path, most_viewers=2)

    async def run() -> None:
        streams = [(await begun(world.live))[0] for _ in range(2)]
        with pytest.raises(ViewersFull, match="2 consoles"):
            world.live.check_room()
        await streams[0].aclose()  # type: ignore[attr-defined]
        world.live.check_room()
        await streams[1].aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_all_streams_end_when_rights_may_have_changed_and_new_ones_begin(world: World) -> None:
    async def run() -> None:
        stream, _ = await begun(world.live)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        world.live.end()
        assert parsed(await waiting) == [("end", {})]
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        again, _ = await begun(world.live)
        await again.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_a_snapshot_that_fails_ends_the_streams_instead_of_leaving_them_waiting(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        stream, _ = await begun(world.live)
        waiting = asyncio.ensure_future(anext(stream))
        world.waiting = [("sum",)]  # type: ignore[list-item]
        await world.seconds.pass_one()
        assert parsed(await waiting) == [("end", {})]
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())
    assert "snapshot failed" in caplog.text


def test_who_may_see_some_models_is_told_of_those_alone(world: World) -> None:
    world.catalog.serve(ScriptedModel("other", 1))
    world.catalog.not_ready = ["model 'other': it is being loaded"]

    async def run() -> None:
        stream, told = await begun(world.live, Grant("some", [Scope.READ], ["s*"]))
        assert [record["model"] for record in told["models"]] == ["sum"]
        assert (told["ready"], told["reasons"]) == (False, [])
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


# Over HTTP.


def watched(made: Service, headers: dict[str, str], then: Callable[[Wire], None]) -> Wire:
    """Open the stream, wait for its first events, do something, and wait for its end."""
    wire = Wire(made, "GET", "/v1/console/live", [(name.encode(), value.encode()) for name, value in headers.items()])

    async def run() -> None:
        running = asyncio.ensure_future(wire.run())
        wire.put()
        async with asyncio.timeout(30):
            while len(wire.sent) < 2 and not running.done():  # noqa: ASYNC110 - what was sent is a list
                await asyncio.sleep(0.01)
            then(wire)
            await running

    asyncio.run(run())
    return wire


def body(wire: Wire) -> bytes:
    return b"".join(message.get("body", b"") for message in wire.sent[1:])


def test_the_stream_ends_whole_when_the_server_stops(tmp_path: Path) -> None:
    made = Service(tmp_path, batches=ScriptedBatches())
    made.catalog.serve(ScriptedModel("sum", 3))
    wire = watched(made, {"host": "localhost"}, lambda _: made.app.begin_drain())
    assert wire.status == 200
    headers = dict(wire.sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-store"
    assert body(wire).startswith(b"event: models\ndata: {")
    assert wire.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    late = watched(made, {"host": "localhost"}, lambda _: None)
    assert (late.status, body(late)) == (204, b""), "who comes then is sent away"


def test_the_stream_ends_with_its_viewer(tmp_path: Path) -> None:
    made = Service(tmp_path, batches=ScriptedBatches())
    wire = watched(made, {"host": "localhost"}, lambda wire: wire.leave())
    assert wire.status == 200


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("wrong", 401), ("predict", 403), ("read", 200)])
def test_the_stream_takes_the_right_to_read(tmp_path: Path, token: str | None, status: int) -> None:
    made = Service(tmp_path, batches=ScriptedBatches(), tokens=tokens())
    wire = watched(made, {"host": "localhost", **bearer(token)}, lambda wire: wire.leave())
    assert wire.status == status


def test_a_token_that_is_revoked_ends_its_streams(tmp_path: Path) -> None:
    made = Service(tmp_path, batches=ScriptedBatches(), tokens=tokens())
    wire = watched(made, {"host": "localhost", **bearer("read")}, lambda _: made.app.gate.change(made.app.settings))
    assert body(wire).endswith(b"event: end\ndata: {}\n\n")


def test_strangers_see_nothing_where_no_token_is_configured(tmp_path: Path) -> None:
    made = Service(tmp_path, batches=ScriptedBatches())
    for path in ("/v1/console/live", "/v1/console/session"):
        assert made.request("GET", path, client=REMOTE).status_code == 403


def test_the_session_says_who_asks_and_what_he_may(tmp_path: Path) -> None:
    made = Service(tmp_path, batches=ScriptedBatches(), tokens=tokens())
    told = made.request("GET", "/v1/console/session", headers=bearer("manage")).json()
    assert (told["who"], told["scopes"], told["all_models"]) == ("manage", ["manage", "read"], False)
    assert made.request("GET", "/v1/console/session").status_code == 401
    here = Service(tmp_path, batches=ScriptedBatches())
    assert here.request("GET", "/v1/console/session").json()["who"] == "local"


def test_the_plan_says_costs_and_choices_of_a_version_that_is_loaded(tmp_path: Path) -> None:
    made = Service(tmp_path, batches=ScriptedBatches())
    made.catalog.serve(ScriptedModel("sum", 3))
    made.catalog.add("sum", 4, State.BUILT)
    (group,) = made.request("GET", "/v1/models/sum/versions/3/plan").json()["groups"]
    assert group["costs"] == [{"rows": 1, "ms": 1.0}, {"rows": 4, "ms": 2.0}, {"rows": 16, "ms": 4.0}]
    alone = group["choices"][0]
    assert (alone["load"], alone["runs"][0]) == (0.0, [1, 1])
    assert alone["runs"][-1][1] == 16
    assert made.request("GET", "/v1/Models/sum/Versions/3/Plan").status_code == 200
    assert made.request("GET", "/v1/models/sum/versions/4/plan").status_code == 503
