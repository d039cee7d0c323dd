"""Loading stands back while there are callers, and leaves the thread as it was."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from server import interpreter_turns
from server.interpreter_turns import standing_back


def work(until_s: float) -> None:
    while time.perf_counter() < until_s:
        len("")


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_load_beside_callers_sleeps_most_of_the_time_and_one_without_never(
    monkeypatch: pytest.MonkeyPatch, *, is_busy: bool
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(interpreter_turns.time, "sleep", sleep)
    before: Any = sys.getprofile(), sys.getswitchinterval()
    with standing_back(lambda: is_busy):
        assert sys.getswitchinterval() < 1e-3
        work(time.perf_counter() + 0.02)
    assert (sys.getprofile(), sys.getswitchinterval()) == before
    assert bool(slept) is is_busy
    # Twice the turn, unless a turn was so long that it was spent waiting.
    assert all(1e-3 <= seconds <= 4e-3 for seconds in slept)
