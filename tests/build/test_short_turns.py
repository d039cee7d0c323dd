"""The server's thread has short turns of the processor while something is built, and builders ordinary ones."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.build import launch
from server.build.short_turns import ShortTurns


def slice_of(text: str) -> str | None:
    """Return the nanoseconds of a thread's turns out of what the kernel tells of it."""
    return next((line.split()[-1] for line in text.splitlines() if line.startswith("se.slice")), None)


def own_turn() -> str | None:
    try:
        return slice_of(Path(f"/proc/self/task/{threading.get_native_id()}/sched").read_text())
    except OSError:
        return None


@pytest.fixture
def ordinary() -> Iterator[str]:
    found = own_turn()
    if found is None:
        pytest.skip("the kernel does not say how long turns are (Linux from 6.12 on, with its debugging information)")
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    yield found
    assert own_turn() == found
    assert os.getpriority(os.PRIO_PROCESS, 0) == niceness


def test_turns_are_short_until_the_last_block_is_left(ordinary: str) -> None:
    turns = ShortTurns(2e-4)
    with turns:
        assert own_turn() == "200000"
        with turns:
            pass
        assert own_turn() == "200000"
    assert own_turn() == ordinary


def test_a_builder_that_is_started_meanwhile_has_ordinary_ones(ordinary: str) -> None:
    look = "import pathlib; print(pathlib.Path('/proc/self/sched').read_text())"
    command = [
        sys.executable,
        "-I",
        "-S",
        str(launch.__file__),
        str(os.getpid()),
        "1",
        "077",
        sys.executable,
        "-c",
        look,
    ]
    with ShortTurns(2e-4):
        found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        plain = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout
    assert slice_of(found) == ordinary
    assert slice_of(plain) == "200000"


def test_who_has_a_policy_of_his_own_keeps_it(ordinary: str) -> None:
    found: list[tuple[int, str | None]] = []

    def idle() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        with ShortTurns(2e-4):
            policy = os.sched_getscheduler(0)
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            found.append((policy, own_turn()))

    thread = threading.Thread(target=idle)
    thread.start()
    thread.join()
    assert found == [(os.SCHED_IDLE, ordinary)]
