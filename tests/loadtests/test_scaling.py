"""What follows for larger machines from what one request demands of each part."""

from __future__ import annotations

import dataclasses

import pytest

from loadtests.scaling import Demand, bound_here, bounds, markdown

_INLINE = Demand(
    http_workers=2,
    callers=32,
    requests_per_s=0.0,
    worker_s=50e-6,
    loop_s=10e-6,
    execute_s=10e-6,
    batch_s=320e-6,
)
_HEAVY = dataclasses.replace(_INLINE, execute_s=200e-6, batch_s=6_400e-6)


def test_two_cores_for_workers_are_full_before_the_loop_is() -> None:
    split = bounds(_INLINE, 3)
    assert split.requests_per_s == pytest.approx(2 / 50e-6)
    assert split.full == "HTTP workers"
    assert split.minus_workers == -2


def test_more_workers_than_the_loop_can_feed_are_not_asked_for() -> None:
    split = bounds(_INLINE, 64)
    assert split.requests_per_s == pytest.approx(1 / 20e-6)
    assert split.full == "event loop with execution"
    assert split.minus_workers == -3


def test_cores_go_to_workers_and_execution_as_a_request_demands_them() -> None:
    split = bounds(_HEAVY, 6)
    assert (split.minus_workers, split.minus_engines) == (-1, -4)
    assert split.requests_per_s == pytest.approx(20_000)


def test_cores_that_would_idle_are_not_given_to_execution() -> None:
    split = bounds(dataclasses.replace(_HEAVY, loop_s=100e-6), 64)
    assert split.full == "event loop"
    assert (split.minus_workers, split.minus_engines) == (-1, -2)


def test_one_process_is_full_when_its_only_loop_is() -> None:
    split = bounds(dataclasses.replace(_INLINE, http_workers=0, worker_s=0.0), 64)
    assert split.requests_per_s == pytest.approx(50_000)
    assert split.minus_workers == 0


def test_no_split_is_better_than_the_one_that_is_returned() -> None:
    for cores in (3, 4, 7):
        most = max(
            min(workers / _HEAVY.worker_s, 1 / _HEAVY.loop_s, engines / _HEAVY.execute_s)
            for workers in range(1, cores - 1)
            for engines in range(1, cores - workers)
        )
        assert bounds(_HEAVY, cores).requests_per_s == pytest.approx(most)


def test_a_machine_of_one_core_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        bounds(_INLINE, 1)


def test_the_page_names_each_size_of_machine_and_what_is_full_there() -> None:
    page = markdown("digits", [dataclasses.replace(_INLINE, http_workers=0, worker_s=0.0), _INLINE], cores_here=2)
    assert "| 64 | with HTTP workers | 50,000 | event loop with execution | 3 | on the loop |" in page
    assert "| 4 | one process | 50,000 | event loop with execution | 0 | on the loop |" in page


def test_here_whoever_asks_has_a_share_of_the_cores() -> None:
    assert bound_here(dataclasses.replace(_INLINE, driver_s=30e-6), 2) == (pytest.approx(20_000), "cores")
    assert bound_here(dataclasses.replace(_INLINE, driver_s=30e-6), 64) == (pytest.approx(1 / 30e-6), "driver")
    assert bound_here(_INLINE, 64) == (pytest.approx(40_000), "HTTP workers")


def test_the_page_says_how_near_a_run_came_to_what_it_could_do() -> None:
    ran = dataclasses.replace(_HEAVY, requests_per_s=4_000.0, driver_s=40e-6)
    assert "| 5,000 | execution | 4,000 | 0.80 |" in markdown(
        "m", [dataclasses.replace(ran, http_workers=0, worker_s=0.0), ran], cores_here=4
    )
