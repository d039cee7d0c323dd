"""The supervisor against small workers that misbehave in one way each."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from server.build import (
    BuildCrashed,
    Builder,
    BuildFailed,
    BuildLimits,
    BuildMemoryExceeded,
    BuildRequest,
    BuildTimeout,
    ImportSource,
    Progress,
)
from server.build.launch import NICENESS
from server.build.process_tree import MARK_VARIABLE
from server.build.supervisor import builder_environment

ROOT = Path(__file__).parents[2]
DOUBLE = Path(__file__).with_name("doubles") / "worker.py"
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}


def ignore(progress: Progress) -> None:
    """Take the progress of a build that nobody looks at."""


def builder(behaviour: str, **limits: Any) -> Builder:
    return Builder(
        limits=BuildLimits(**limits), command=(sys.executable, str(DOUBLE), behaviour), environment=ENVIRONMENT
    )


def request(directory: Path, name: str = "digits") -> BuildRequest:
    output = directory / f"{name}-output"
    output.mkdir()
    return BuildRequest(
        name=name,
        version=3,
        spec={"max_batch": 8},
        source=ImportSource(target="models.digits:predict"),
        source_dir=directory / "source",
        output_dir=output,
        import_packages=("models",),
        batch_limit=16,
    )


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Run a coroutine on each of the loops that the server may have."""

    def runner(coroutine: Coroutine[Any, Any, None]) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(asyncio.wait_for(coroutine, 300))

    return runner


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def worker_pid(output: Path) -> int:
    return int((output / "pid").read_text())


async def until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.005)


def test_a_build_that_goes_well_passes_the_request_in_and_the_progress_out(run: Any, tmp_path: Path) -> None:
    asked = request(tmp_path)
    seen: list[Progress] = []

    async def scenario() -> None:
        await builder("good").build(asked, seen.append)

    run(scenario())
    assert seen == [Progress("check", step, 3) for step in (1, 2, 3)]
    assert BuildRequest.from_json(json.loads((asked.output_dir / "request.json").read_text())) == asked
    assert not is_running(worker_pid(asked.output_dir))


def test_a_worker_runs_nicely_in_a_session_of_its_own_and_dies_first(run: Any, tmp_path: Path) -> None:
    asked = request(tmp_path)

    async def scenario() -> None:
        await builder("good").build(asked, ignore)

    run(scenario())
    state = json.loads((asked.output_dir / "state.json").read_text())
    assert state["nice"] == min(os.nice(0) + NICENESS, 19)
    assert state["group"] == state["session"] == worker_pid(asked.output_dir)
    assert state["oom_score_adj"] > int(Path("/proc/self/oom_score_adj").read_text())


def test_a_worker_sees_no_token_of_the_server() -> None:
    parent = {
        "PATH": "/bin",
        "HOME": "/home/x",
        "LC_ALL": "C.UTF-8",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "CUDA_VISIBLE_DEVICES": "1",
        "ROWWISE_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "HTTPS_PROXY": "http://user:secret@proxy",
    }
    allowed = builder_environment(parent)
    assert "secret" not in "".join(allowed.values())
    assert set(allowed) == {"PATH", "HOME", "LC_ALL", "TF_ENABLE_ONEDNN_OPTS", "CUDA_VISIBLE_DEVICES"}


def test_a_worker_has_the_given_environment_and_no_other(run: Any, tmp_path: Path) -> None:
    asked = request(tmp_path)

    async def scenario() -> None:
        await builder("good").build(asked, ignore)

    run(scenario())
    environment = json.loads((asked.output_dir / "environment.json").read_text())
    ours = {"PYTHONUNBUFFERED", "PYTHONFAULTHANDLER", MARK_VARIABLE, "LC_CTYPE"}
    assert set(environment) - ours == set(ENVIRONMENT)


def test_a_refusal_arrives_with_its_kind_and_sentence(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(BuildFailed, match=r"^op Foo has no converter$") as caught:
            await builder("refuse").build(request(tmp_path), ignore)
        assert caught.value.kind == "ValueError"

    run(scenario())


def test_a_refusal_of_megabytes_is_cut(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(BuildFailed, match="characters more") as caught:
            await builder("refuse-at-length").build(request(tmp_path), ignore)
        assert len(str(caught.value)) < 20_000

    run(scenario())


def test_a_crash_by_signal_names_the_signal_and_shows_the_end_of_the_output(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(
            BuildCrashed, match=r"builder of version 3 of model 'digits' was killed by SIGSEGV"
        ) as caught:
            await builder("signal").build(request(tmp_path), ignore)
        assert caught.value.signal == signal.SIGSEGV
        assert caught.value.exit_code is None
        assert "about to fall" in caught.value.output
        assert "about to fall" in str(caught.value)

    run(scenario())


def test_a_kill_from_outside_is_put_down_to_memory(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(
            BuildCrashed, match="SIGKILL from outside, most likely because the machine ran out of memory"
        ):
            await builder("killed").build(request(tmp_path), ignore)

    run(scenario())


def test_an_exit_without_a_result_names_the_code_and_shows_the_last_twenty_lines(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(BuildCrashed, match="left with exit code 3 and no result") as caught:
            await builder("exit").build(request(tmp_path), ignore)
        assert (caught.value.exit_code, caught.value.signal) == (3, None)
        assert caught.value.output == tuple(f"line {line}" for line in range(80, 100))

    run(scenario())


def test_the_last_words_of_a_loud_worker_are_not_lost(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(BuildCrashed) as caught:
            await builder("loud-exit").build(request(tmp_path), ignore)
        assert caught.value.output[-1] == "last words"

    run(scenario())


@pytest.mark.parametrize("behaviour", ["exit-silently", "half-a-line"])
def test_an_exit_code_of_zero_without_a_result_is_a_crash(run: Any, tmp_path: Path, behaviour: str) -> None:
    async def scenario() -> None:
        with pytest.raises(BuildCrashed, match="left with exit code 0 and no result"):
            await builder(behaviour).build(request(tmp_path), ignore)

    run(scenario())


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


def test_megabytes_on_standard_output_and_error_neither_block_nor_count(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        await builder("loud").build(request(tmp_path), ignore)

    run(scenario())


def test_a_request_larger_than_a_pipe_holds_doesnt_wait_for_a_worker_to_read_it(run: Any, tmp_path: Path) -> None:
    asked = request(tmp_path)
    large = BuildRequest(
        name="large",
        version=1,
        spec={"examples": ["x" * 1000] * 5000},
        source=asked.source,
        source_dir=asked.source_dir,
        output_dir=asked.output_dir,
    )

    async def scenario() -> None:
        await builder("good").build(large, ignore)

    run(scenario())
    assert BuildRequest.from_json(json.loads((asked.output_dir / "request.json").read_text())) == large


@pytest.mark.parametrize("behaviour", ["stay-when-done", "crash-when-done"])
def test_a_result_stands_whatever_the_worker_does_afterwards(run: Any, tmp_path: Path, behaviour: str) -> None:
    asked = request(tmp_path)

    async def scenario() -> None:
        await builder(behaviour, exit_grace_s=0.2).build(asked, ignore)

    run(scenario())
    assert not is_running(worker_pid(asked.output_dir))


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


def children(output: Path) -> list[int]:
    found: list[int] = json.loads((output / "children.json").read_text())
    return found


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


def test_an_error_of_the_listener_ends_the_build_and_is_not_lost(run: Any, tmp_path: Path) -> None:
    asked = request(tmp_path)

    def listener(progress: Progress) -> None:
        raise TimeoutError("the listener's own")

    async def scenario() -> None:
        with pytest.raises(TimeoutError, match="the listener's own"):
            await builder("hang").build(asked, listener)

    run(scenario())
    assert not is_running(worker_pid(asked.output_dir))


def test_a_command_that_does_not_exist_is_a_crash_that_says_so(run: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        missing = Builder(command=(str(tmp_path / "missing"),), environment=ENVIRONMENT)
        with pytest.raises(BuildCrashed, match="exit code 1 and no result") as caught:
            await missing.build(request(tmp_path), ignore)
        assert "FileNotFoundError" in str(caught.value)

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


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="build_timeout_s must be more than 0, got 0"):
        BuildLimits(build_timeout_s=0)
