"""A comparison's medians, table and picture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loadtests.comparison import BATCHED, CONTENDERS, LIMITED, LOOPED, Comparison, Run
from loadtests.driver import Measurement
from loadtests.report import draw, duration, markdown

GOOD = Measurement(
    callers=1,
    duration_s=1.0,
    n_answers=1000,
    requests_per_s=1000.0,
    p50_us=100.0,
    p90_us=200.0,
    p99_us=300.0,
    max_us=400.0,
    busy=0.2,
)


def comparison(rates: dict[str, float], *, callers: tuple[int, ...] = (1, 128)) -> Comparison:
    made = Comparison(
        machine={"CPU": "Testchip (2 cores)"}, models=("digits",), callers=callers, repeats=3, pinned=True
    )
    made.capacity = {level: replace(GOOD, callers=level, requests_per_s=60_000.0, p50_us=40.0) for level in callers}
    for repeat, share in enumerate((1.0, 0.5, 1.5)):
        for level in callers:
            for contender in CONTENDERS:
                measured = replace(GOOD, callers=level, requests_per_s=rates[contender] * share)
                made.runs.append(
                    Run(
                        model="digits",
                        contender=contender,
                        callers=level,
                        repeat=repeat,
                        server_us=15.0,
                        measured=measured,
                    )
                )
    return made


def test_a_cell_is_the_median_of_its_repeats_with_their_range() -> None:
    cell = comparison({BATCHED: 20_000, LIMITED: 8_000, LOOPED: 2_000}).median("digits", BATCHED, 128)
    assert (cell.requests_per_s, cell.lowest, cell.highest) == (20_000, 10_000, 30_000)
    assert (cell.p50_us, cell.p99_us, cell.server_us) == (100.0, 300.0, 15.0)


def test_a_cell_that_was_not_measured_is_an_error() -> None:
    with pytest.raises(KeyError):
        comparison({BATCHED: 1, LIMITED: 1, LOOPED: 1}).median("digits", BATCHED, 7)


@pytest.mark.parametrize(
    ("rates", "gains", "verdict"),
    [
        ((20_000, 8_000, 2_000), "10.0x | 4.0x | 2.5x", "both: "),
        ((8_800, 8_000, 2_000), "4.4x | 4.0x | 1.1x", "calls: "),
        ((6_000, 2_100, 2_000), "3.0x | 1.1x | 2.9x", "batching: "),
        ((2_100, 2_000, 2_000), "1.1x | 1.0x | 1.1x", "little: "),
        ((1_000, 2_000, 2_000), "0.5x | 1.0x | 0.5x", "loss: "),
    ],
)
def test_each_gain_is_told_apart_and_named(rates: tuple[int, int, int], gains: str, verdict: str) -> None:
    text = markdown(comparison(dict(zip(CONTENDERS, rates, strict=True))))
    (line,) = [line for line in text.splitlines() if line.startswith(f"| digits | {rates[0]:,} ")]
    assert f"| {gains} | {verdict}" in line


def test_the_report_has_a_row_for_every_cell_and_says_what_it_rests_on() -> None:
    text = markdown(comparison({BATCHED: 20_000, LIMITED: 8_000, LOOPED: 2_000}), picture="report.png")
    for callers in (1, 128):
        for contender in CONTENDERS:
            assert f"| {callers} | {contender} | " in text
    assert "Testchip (2 cores)" in text
    assert "medians of 3 interleaved runs" in text
    assert "18,000 answers, 0 wrong or missing" in text
    assert "(report.png)" in text
    assert "A lone caller's median above that bare round trip: digits 60 us" in text
    assert "Wrong and missing" not in text


def test_wrong_answers_are_shown_with_where_they_came_from() -> None:
    made = comparison({BATCHED: 3, LIMITED: 2, LOOPED: 1})
    bad = replace(made.runs[0].measured, failures={"wrong answer": 2}, first_failure="wrong answer: request 5: {}")
    made.runs[0] = replace(made.runs[0], measured=bad)
    text = markdown(made)
    assert "2 wrong or missing" in text
    assert f"- digits, {BATCHED}, 1 callers: 2 x wrong answer; the first: wrong answer: request 5: {{}}" in text


def test_a_busy_driver_is_said_to_have_been_the_limit() -> None:
    made = comparison({BATCHED: 3, LIMITED: 2, LOOPED: 1})
    made.runs = [replace(run, measured=replace(run.measured, busy=0.97)) for run in made.runs]
    assert markdown(made).count("driver busy: a lower bound") == 6


def test_a_machine_that_others_were_using_is_said_to_be_so() -> None:
    made = comparison({BATCHED: 3, LIMITED: 2, LOOPED: 1})
    assert "Other processes" not in markdown(made)
    made.others = 1.234
    assert "Other processes kept 1.2 cores busy" in markdown(made)


def test_a_second_opinion_stands_beside_ours() -> None:
    made = comparison({BATCHED: 20_000, LIMITED: 8_000, LOOPED: 2_000})
    made.wrk = [(BATCHED, 128, 21_234.0)]
    assert f"| {BATCHED} | 128 | 20,000 | 21,234 |" in markdown(made)


def test_the_json_holds_every_run() -> None:
    made = comparison({BATCHED: 3, LIMITED: 2, LOOPED: 1})
    assert len(json.loads(json.dumps(made.to_json()))["runs"]) == 18


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(0.4, "0 us"), (999, "999 us"), (1_250, "1.2 ms"), (99_900, "99.9 ms"), (250_000, "250 ms")],
)
def test_times_come_in_the_unit_that_suits_them(microseconds: float, text: str) -> None:
    assert duration(microseconds) == text


def test_the_picture_shows_all_three_contenders(tmp_path: Path) -> None:
    from matplotlib.image import imread

    draw(comparison({BATCHED: 20_000, LIMITED: 8_000, LOOPED: 2_000}, callers=(1, 8, 32, 128)), tmp_path / "p.png")
    pixels = imread(tmp_path / "p.png")
    assert pixels.shape[0] > 400
    assert pixels.shape[1] > 400
    colors = {tuple((pixel[:3] * 255).round().astype(int)) for row in pixels[::2] for pixel in row[::2]}
    assert {(0x0B, 0x6E, 0x4F), (0xE0, 0x9F, 0x3E), (0x9E, 0x2A, 0x2B)} <= colors
