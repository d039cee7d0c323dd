"""Figures of requests whose ends are made up, so that each can be counted by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from loadtests.runs.figures import curves, figures, figures_by_model, timeline
from loadtests.runs.observations import Observations, Observer


def observed(
    rows: Sequence[tuple[float, float, str]], *, warmup_s: float = 0.0, elapsed_s: float = 10.0, busy: float = 0.1
) -> Observations:
    """Make observations of (due, latency, outcome)."""
    seen = Observer(["only"])
    for due_s, took_s, outcome in rows:
        number = 0 if outcome == "right" else seen.failure(outcome, f"the message of {outcome}")
        seen.add(0, due_s, due_s, due_s + took_s, number)
    return seen.finish(warmup_s=warmup_s, elapsed_s=elapsed_s, busy=busy, is_interrupted=False)


def test_quantiles_are_those_of_the_latencies() -> None:
    found = figures(observed([(0.001 * number, (number + 1) / 1e3, "right") for number in range(1_000)]))
    assert (found.p50_ms, found.p90_ms, found.p99_ms, found.p999_ms, found.max_ms) == pytest.approx(
        (500, 900, 990, 999, 1_000)
    )
    assert found.mean_ms == pytest.approx(500.5)
    assert found.n_requests == found.n_right == found.n_latencies == 1_000


def test_the_warm_up_is_not_counted() -> None:
    found = figures(observed([(0.5, 9.0, "right"), (2.0, 0.1, "right"), (3.0, 0.2, "right")], warmup_s=1.0))
    assert found.n_requests == 2
    assert found.max_ms == pytest.approx(200)
    # The answer that came at 9.5 s is one of those that were read within the nine seconds.
    assert found.requests_per_s == pytest.approx(3 / 9)


def test_refusals_have_no_part_in_latency_and_silence_has() -> None:
    rows = [(1.0, 0.010, "right"), (1.1, 0.001, "status 429"), (1.2, 5.0, "no answer"), (1.3, 0.001, "wrong answer")]
    rows.append((1.4, 4.0, "status 504"))
    found = figures(observed(rows))
    assert (found.n_requests, found.n_right, found.n_failed) == (5, 1, 4)
    assert found.failed_share == 0.8
    assert found.n_latencies == 3
    assert found.max_ms == pytest.approx(5_000)
    assert {failure.kind: failure.count for failure in found.failures} == {
        "status 429": 1,
        "no answer": 1,
        "wrong answer": 1,
        "status 504": 1,
    }
    assert found.failures[0].example == "the message of status 429"


def test_nothing_seen_is_no_division_by_zero() -> None:
    found = figures(observed([]))
    assert (found.n_requests, found.p99_ms, found.failed_share) == (0, 0.0, 0.0)
    assert curves(observed([])).counts == ()
    assert all(interval.p50_ms is None for interval in timeline(observed([])))


def test_the_timeline_has_every_answer_once_and_shows_when_it_was_slow() -> None:
    rows = [(number / 100, 0.005, "right") for number in range(900)]
    rows += [(5.0, 0.8, "right"), (5.2, 0.001, "status 503")]
    stretches = timeline(observed(rows))
    assert sum(each.requests_per_s * each.length_s for each in stretches) == pytest.approx(901)
    assert sum(each.failed_per_s * each.length_s for each in stretches) == pytest.approx(1)
    slow = max(stretches, key=lambda each: each.p99_ms or 0)
    assert slow.at_s <= 5.8 < slow.at_s + slow.length_s


def test_the_histogram_holds_every_latency_and_the_curve_ascends() -> None:
    rng = np.random.default_rng(1)
    seen = observed([(0.001, float(took), "right") for took in rng.lognormal(-5, 1, 5_000)])
    drawn = curves(seen)
    assert sum(drawn.counts) == 5_000
    assert len(drawn.edges_ms) == len(drawn.counts) + 1
    assert list(drawn.latency_ms) == sorted(drawn.latency_ms)
    assert drawn.latency_ms[-1] == pytest.approx(figures(seen).max_ms)
    assert list(drawn.edges_ms) == sorted(drawn.edges_ms)


@pytest.mark.parametrize("took_s", [0.0, 0.25])
def test_latencies_that_are_all_alike_are_drawn_too(took_s: float) -> None:
    drawn = curves(observed([(0.1, took_s, "right")] * 7))
    assert sum(drawn.counts) == 7
    assert all(math.isfinite(edge) for edge in drawn.edges_ms)


def test_models_are_told_apart_and_processes_put_together() -> None:
    first, second = Observer(["a", "b"]), Observer(["a", "b"])
    first.add(0, 1.0, 1.0, 1.1)
    first.add(1, 1.0, 1.0, 1.2, first.failure("status 500", "one"))
    second.add(1, 2.0, 2.0, 2.4)
    second.add(0, 2.0, 2.0, 2.1, second.failure("status 429", "two"))
    second.add(0, 2.0, 2.0, 2.1, second.failure("status 500", "three"))
    end = {"warmup_s": 0.0, "elapsed_s": 4.0, "is_interrupted": False}
    seen = Observations.merged([first.finish(busy=0.2, **end), second.finish(busy=0.7, **end)])
    assert seen.busy == 0.7
    assert {failure.kind: failure.count for failure in figures(seen).failures} == {"status 500": 2, "status 429": 1}
    by_model = figures_by_model(seen)
    assert (by_model["a"].n_requests, by_model["a"].n_right) == (3, 1)
    assert (by_model["b"].n_requests, by_model["b"].max_ms) == (2, pytest.approx(400))
