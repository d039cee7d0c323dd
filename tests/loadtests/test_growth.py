"""Slopes of a long run: what grows is found, what only rises and falls is not."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from loadtests.growth import Sample, draw, findings, slope


def samples(
    *, mb_each: float = 0.0, fds_each: float = 0.0, threads_each: float = 0.0, cycles_each: float = 0.0
) -> list[Sample]:
    return [
        Sample(
            at_s=2.0 * number,
            # A warm-up, and a wave that goes nowhere.
            rss_mb=800.0 - 300.0 * math.exp(-number / 10) + 20.0 * math.sin(number) + mb_each * number,
            n_fds=40 + number % 5 + fds_each * number,
            n_threads=30 + threads_each * number,
            n_waiting=float(number % 7),
            n_compiled=0.0,
            traced_s=0.0,
            n_cycles=int(cycles_each * number),
            n_answers=100 * number,
        )
        for number in range(200)
    ]


def test_what_warms_up_and_waves_does_not_grow() -> None:
    assert all(finding.is_fit for finding in findings(samples()))


@pytest.mark.parametrize(
    ("option", "what"), [("mb_each", "resident memory, MB"), ("fds_each", "open files"), ("threads_each", "threads")]
)
def test_what_grows_is_found(option: str, what: str) -> None:
    grown = [finding for finding in findings(samples(**{option: 0.5})) if not finding.is_fit]
    assert [finding.what for finding in grown] == [what]
    assert grown[0].growth == pytest.approx(0.5 * 133, rel=0.1)


def test_one_compilation_for_a_request_is_one_too_many() -> None:
    seen = samples()
    seen[-20:] = [replace(sample, n_compiled=1.0) for sample in seen[-20:]]
    assert [finding.what for finding in findings(seen) if not finding.is_fit] == ["compiled for requests"]


def test_a_cycle_may_leave_a_megabyte_and_no_more() -> None:
    assert all(finding.is_fit for finding in findings(samples(mb_each=0.5, cycles_each=0.5)))
    assert not all(finding.is_fit for finding in findings(samples(mb_each=1.0, cycles_each=0.5)))


def test_a_slope_is_not_moved_by_a_peak() -> None:
    values = [0.1 * at for at in range(50)]
    values[25] = 1_000.0
    assert slope(list(map(float, range(50))), values) == pytest.approx(0.1, rel=0.01)
    assert slope([1.0], [2.0]) == 0.0


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    draw(samples(), tmp_path / "soak.png")
    assert (tmp_path / "soak.png").stat().st_size > 10_000
