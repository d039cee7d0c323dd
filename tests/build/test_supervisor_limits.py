"""The supervisor's limits: time, memory, what a worker says, and how many build at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.build import (
    BuildCrashed,
    BuildFailed,
    BuildLimits,
    BuildMemoryExceeded,
    BuildRequest,
    BuildTimeout,
    Progress,
)
from tests.build.doubles.builds import (
    builder,
    ignore,
    is_running,
    request,
    until,
    worker_pid,
)


@pytest.mark.parametrize("behaviour", ["hang", "ignore-sigterm", "close-and-stay", "flood"])
def test_a_worker_that_never_ends_is_killed_at_the_time_limit(run: Any, tmp_path: Path, behaviour: str) -> None:
    async def scenario(asked: BuildRequest, limit_s: float) -> None:
        with pytest.raises(BuildTimeout, match=f"within build_timeout_s = {limit_s:g} seconds"):
            await builder(behaviour, build_timeout_s=limit_s).build(asked, ignore)

    # On a busy machine the first limits may pass before the worker gets to misbehave.
    for limit_s in (0.5, 2, 8, 32):
        asked = request(tmp_path, f"within-{limit_s}")
        run(scenario(asked, limit_s))
        if (asked.output_dir / "pid").exists():
            break
    assert not is_running(worker_pid(asked.output_dir))


def test_a_flood_of_events_leaves_the_event_loop_its_turns(run: Any, tmp_path: Path) -> None:
    in_a_row, most, total = 0, 0, 0

    def count(progress: Progress) -> None:
        nonlocal in_a_row, most, total
        in_a_row, total = in_a_row + 1, total + 1
        most = max(most, in_a_row)
        if total == 3_000:
            raise EOFError("enough")

    async def others() -> None:
        nonlocal in_a_row
        while True:
            in_a_row = 0
            await asyncio.sleep(0)

    async def scenario() -> None:
        turns = asyncio.create_task(others())
        with pytest.raises(EOFError, match="enough"):
            await builder("flood").build(request(tmp_path), count)
        turns.cancel()

    run(scenario())
    # A pipe holds a thousand events, which without a pause would all be taken in one turn of the loop.
    assert most <= 2


@pytest.mark.parametrize("behaviour", ["grow", "grow-in-an-orphan"])
def test_a_worker_that_eats_memory_is_killed_at_the_limit(run: Any, tmp_path: Path, behaviour: str) -> None:
    asked = request(tmp_path)
    limit = 160 * 2**20

    async def scenario() -> None:
        with pytest.raises(BuildMemoryExceeded, match=f"over build_memory_bytes = {limit}") as caught:
            await builder(behaviour, build_memory_bytes=limit).build(asked, ignore)
        # It is looked at every 50 ms, in which these grow by at most 40 MiB.
        assert limit < caught.value.used_bytes < 2 * limit

    run(scenario())
    assert not is_running(worker_pid(asked.output_dir))


@pytest.mark.parametrize("behaviour", ["garbage", "endless-line"])
def test_a_worker_that_says_nonsense_is_killed_and_taken_for_crashed(run: Any, tmp_path: Path, behaviour: str) -> None:
    asked = request(tmp_path)

    async def scenario() -> None:
        with pytest.raises(BuildCrashed, match="no event of a builder"):
            await builder(behaviour).build(asked, ignore)

    run(scenario())
    assert not is_running(worker_pid(asked.output_dir))


def test_builds_over_the_limit_wait_their_turn_and_say_so(run: Any, tmp_path: Path) -> None:
    asked = [request(tmp_path, name) for name in ("a", "b", "c", "d")]
    seen: dict[str, list[str]] = {each.name: [] for each in asked}

    async def scenario() -> None:
        shared = builder("wait-for-file", concurrent_builds=2)
        builds = [
            asyncio.create_task(shared.build(each, lambda progress, name=each.name: seen[name].append(progress.stage)))
            for each in asked
        ]
        await until(lambda: seen == {"a": ["trace"], "b": ["trace"], "c": ["queued"], "d": ["queued"]})
        (asked[0].output_dir / "go").touch()
        await builds[0]
        await until(lambda: seen["c"] == ["queued", "trace"])
        assert seen["d"] == ["queued"]
        assert not (asked[3].output_dir / "pid").exists()
        builds[3].cancel()
        for each in asked[1:3]:
            (each.output_dir / "go").touch()
        await asyncio.gather(*builds[:3])
        assert builds[3].cancelled()

    run(scenario())
    assert not (asked[3].output_dir / "pid").exists()


def test_a_failed_build_gives_its_turn_back(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        shared = builder("refuse", concurrent_builds=1)
        for name in ("a", "b", "c"):
            with pytest.raises(BuildFailed):
                await shared.build(request(tmp_path, name), ignore)

    run(scenario())


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="build_timeout_s must be more than 0, got 0"):
        BuildLimits(build_timeout_s=0)
