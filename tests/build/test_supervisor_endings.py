"""Nothing outlives a build: workers, their children, descriptors, whoever ends first."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from server.build import (
    BuildCrashed,
    BuildFailed,
)
from tests.build.doubles.builds import (
    DOUBLE,
    ENVIRONMENT,
    ROOT,
    builder,
    children,
    ignore,
    is_running,
    open_descriptors,
    request,
    until,
    worker_pid,
)


def test_a_cancelled_build_is_killed_before_the_caller_goes_on(run: Any, tmp_path: Path) -> None:
    asked = request(tmp_path)

    async def scenario() -> None:
        started = asyncio.Event()
        build = asyncio.create_task(builder("ignore-sigterm").build(asked, lambda _: started.set()))
        await started.wait()
        build.cancel()
        with pytest.raises(asyncio.CancelledError):
            await build
        assert not is_running(worker_pid(asked.output_dir))

    run(scenario())


def test_a_build_that_is_cancelled_twice_is_killed_all_the_same(run: Any, tmp_path: Path) -> None:
    asked = request(tmp_path)

    async def scenario() -> None:
        started = asyncio.Event()
        build = asyncio.create_task(builder("hang").build(asked, lambda _: started.set()))
        await started.wait()
        build.cancel()
        await asyncio.sleep(0)
        build.cancel()
        with pytest.raises(asyncio.CancelledError):
            await build
        # Not even a zombie: it was waited for.
        await until(lambda: not Path(f"/proc/{worker_pid(asked.output_dir)}").exists())

    run(scenario())


def test_processes_that_a_cancelled_worker_started_are_killed_too(run: Any, tmp_path: Path) -> None:
    asked = request(tmp_path)

    async def scenario() -> None:
        started = asyncio.Event()
        build = asyncio.create_task(builder("children").build(asked, lambda _: started.set()))
        await started.wait()
        assert all(is_running(child) for child in children(asked.output_dir))
        build.cancel()
        with pytest.raises(asyncio.CancelledError):
            await build
        await until(lambda: not any(is_running(child) for child in children(asked.output_dir)))

    run(scenario())


def test_processes_of_a_worker_that_crashed_are_killed_and_its_crash_is_seen_at_once(run: Any, tmp_path: Path) -> None:
    asked = request(tmp_path)

    async def scenario() -> None:
        with pytest.raises(BuildCrashed, match="exit code 7"):
            await builder("children-then-exit").build(asked, ignore)
        await until(lambda: not any(is_running(child) for child in children(asked.output_dir)))

    run(scenario())


def test_processes_that_a_good_worker_left_behind_are_killed(run: Any, tmp_path: Path) -> None:
    asked = request(tmp_path)

    async def scenario() -> None:
        await builder("children-then-done").build(asked, ignore)
        await until(lambda: not any(is_running(child) for child in children(asked.output_dir)))

    run(scenario())


def test_nothing_is_left_open_by_many_builds(run: Any, tmp_path: Path) -> None:
    counts: list[int] = []

    async def scenario() -> None:
        for index in range(6):
            behaviour = ("good", "refuse", "exit")[index % 3]
            with suppress(BuildFailed, BuildCrashed):
                await builder(behaviour).build(request(tmp_path, f"m{index}"), ignore)
            # Transports close one turn of the loop later.
            await asyncio.sleep(0.01)
            counts.append(open_descriptors())

    run(scenario())
    assert counts[0] == counts[-1]


SERVER = """
import asyncio, sys
from pathlib import Path
from server.build import Builder, BuildRequest, ImportSource
directory = Path(sys.argv[1])
request = BuildRequest(name="m", version=1, spec={}, source=ImportSource(target="m:f"), source_dir=directory,
                       output_dir=directory)
builder = Builder(command=(sys.executable, sys.argv[2], "ignore-sigterm"))
asyncio.run(builder.build(request, lambda _: print("started", flush=True)))
"""


def test_a_worker_dies_with_a_server_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path), str(DOUBLE)],
        stdout=subprocess.PIPE,
        env=ENVIRONMENT,
        cwd=ROOT,
        text=True,
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "started\n"
        assert is_running(worker_pid(tmp_path))
        server.kill()
        server.wait()
        deadline = time.monotonic() + 60
        while is_running(worker_pid(tmp_path)):
            assert time.monotonic() < deadline, "the worker outlived its server"
            time.sleep(0.005)
