"""The supervisor against small workers that misbehave in one way each: what goes in, and what comes out."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from server.build import (
    BuildCrashed,
    Builder,
    BuildFailed,
    BuildLimits,
    BuildRequest,
    Progress,
)
from server.build.process_tree import MARK_VARIABLE
from server.build.supervisor import builder_environment
from tests.build.doubles.builds import (
    ENVIRONMENT,
    builder,
    ignore,
    is_running,
    request,
    worker_pid,
)


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
    assert state["nice"] == min(os.nice(0) + BuildLimits().build_niceness, 19)
    if state["autogroup"]:
        # Else the kernel gives its session as much of the processor as the server's.
        assert state["autogroup"].split()[-1] == str(state["nice"])
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
