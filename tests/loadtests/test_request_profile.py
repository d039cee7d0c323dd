"""A profile's steps are there to be watched, nested ones count once, and what is left over is named."""

from __future__ import annotations

import importlib
import time

from loadtests.request_profile import STEPS, Profile, Stopwatch, markdown


def test_every_step_names_a_method_that_is_there() -> None:
    for name, method, _ in STEPS:
        module, _, owner = name.partition(":")
        assert callable(getattr(getattr(importlib.import_module(module), owner), method)), name


def spin(seconds: float) -> None:
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def test_time_of_a_nested_step_is_its_own() -> None:
    class Server:
        def outer(self) -> None:
            spin(0.02)
            self.inner()

        def inner(self) -> None:
            spin(0.06)

    stopwatch = Stopwatch()
    stopwatch.watch(Server, "outer", "outer")
    stopwatch.watch(Server, "inner", "inner")
    Server().outer()
    assert 0.02 <= stopwatch.spent_s["outer"] < stopwatch.spent_s["inner"]


def test_the_table_has_a_line_for_each_step_and_their_sum() -> None:
    profile = Profile(callers=8, requests_s=1_000.0, steps_us={"read": 1.25, "write": 2.5})
    assert markdown([profile]).splitlines() == [
        "| step | 8 callers |",
        "|---|---:|",
        "| read | 1.2 |",
        "| write | 2.5 |",
        "| **all** | **3.8** |",
    ]
