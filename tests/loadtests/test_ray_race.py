"""What rounds of the race on a Ray cluster come to."""

from __future__ import annotations

from loadtests.driver import Measurement
from loadtests.ray_race import BY_HAND, OURS, ratio, rows_of


def measured(requests_per_s: float, *, failures: int = 0) -> Measurement:
    return Measurement(
        callers=8,
        duration_s=1.0,
        n_answers=round(requests_per_s),
        requests_per_s=requests_per_s,
        p50_us=1_000.0,
        p90_us=1_500.0,
        p99_us=2_000.0,
        max_us=3_000.0,
        busy=0.1,
        failures={"no answer": failures} if failures else {},
    )


def test_rounds_are_compared_each_with_itself() -> None:
    # The machine halved its speed in the second round: the ratio is 3 in all of them, that of medians is not.
    runs = {
        (8, OURS): [measured(3_000), measured(1_500), measured(2_700)],
        (8, BY_HAND): [measured(1_000), measured(500), measured(900)],
    }
    assert ratio(runs, 8) == 3.0


def test_medians_are_told_with_all_failures() -> None:
    runs = {(8, OURS): [measured(10, failures=1), measured(30), measured(20, failures=2)]}
    (row,) = rows_of(runs, {(8, OURS): [300.0, 200.0, 900.0]})
    times = {"p50_ms": 1.0, "p99_ms": 2.0, "replica_us": 300.0}
    assert row == {"callers": 8, "server": OURS, "requests_per_s": 20, **times, "failures": 3}
