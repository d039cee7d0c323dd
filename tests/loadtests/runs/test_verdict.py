"""What a reader is warned of, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from loadtests.runs.figures import figures
from loadtests.runs.load import Load
from loadtests.runs.observations import Observations, Observer
from loadtests.runs.verdict import Targets, remarks


def seen_of(
    n: int = 2_000, *, slow_s: float = 0.001, n_waited: int = 0, is_interrupted: bool = False, busy: float = 0.3
) -> Observations:
    observer = Observer(["m"])
    observer.n_waited = n_waited
    for number in range(n):
        due_s = number * 10 / n
        observer.add(0, due_s, due_s, due_s + slow_s)
    return observer.finish(warmup_s=0.0, elapsed_s=10.0, busy=busy, is_interrupted=is_interrupted)


def said(seen: Observations, *, is_checked: bool = True, others: float = 0.0, load: Load | None = None) -> str:
    return "\n".join(remarks(load or Load(rate=200.0), seen, figures(seen), is_checked=is_checked, others=others))


def test_a_run_that_is_as_it_should_be_has_no_remarks() -> None:
    assert said(seen_of()) == ""


@pytest.mark.parametrize(
    ("options", "others", "expected"),
    [
        ({"busy": 0.95}, {}, "may have been the limit"),
        ({"slow_s": 5.0}, {}, "latency grew for as long"),
        ({"n_waited": 100}, {}, "found all 128 connections taken"),
        ({"n": 500}, {}, "quantiles are of 500 answers"),
        ({"is_interrupted": True}, {}, "Interrupted"),
        ({}, {"is_checked": False}, "not checked"),
        ({}, {"others": 1.2}, "kept 1.2 cores"),
        ({}, {"load": Load(rate=200.0, max_requests=2_000)}, "--max-requests"),
    ],
)
def test_what_makes_figures_worth_less_is_said(options: Any, others: Any, expected: str) -> None:
    remark = said(seen_of(**options), **others)
    assert expected in remark
    assert "\n" not in remark, "and nothing else"


def test_a_step_misses_by_its_first_target_that_is_missed_or_by_falling_behind() -> None:
    targets = Targets(p99_ms=10.0, max_errors=0.0)
    assert targets.miss(figures(seen_of())) is None
    assert "p99" in str(targets.miss(figures(seen_of(slow_s=0.5))))
    assert "answered in time" in str(Targets(max_errors=0.0).miss(figures(seen_of(slow_s=5.0))))
    assert "right answers" in str(targets.miss(figures(seen_of(0))))
