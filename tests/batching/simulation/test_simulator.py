"""Virtual time: who is served when, under which policy."""

from __future__ import annotations

import random

import pytest

from server.batching import CostTable
from server.batching.simulation import (
    ClosedLoop,
    Trace,
    batch_down,
    bursts,
    diurnal,
    minimize_cost_per_row,
    pad_up,
    planned,
    poisson,
    simulate,
    singles,
    window,
)

COSTS = CostTable({1: 1.0, 2: 1.5, 4: 2.0})


def test_rows_that_come_while_a_batch_runs_share_the_next_one() -> None:
    outcome = simulate(pad_up, COSTS, Trace([0.0, 0.1, 0.2, 0.3]))
    # The first alone until 1.0; the other three in the bucket of four until 3.0.
    assert outcome.waited_s == pytest.approx((1.0, 2.9, 2.8, 2.7))
    assert (outcome.n_batches, outcome.n_padding, outcome.ended_s) == (2, 1, 3.0)


def test_policies_differ_in_what_they_do_with_three_rows() -> None:
    trace = [0.0, 0.0, 0.0]
    assert simulate(singles, COSTS, Trace(trace)).waited_s == (1.0, 2.0, 3.0)
    assert simulate(pad_up, COSTS, Trace(trace)).waited_s == (2.0, 2.0, 2.0)
    assert simulate(batch_down, COSTS, Trace(trace)).waited_s == (1.5, 1.5, 2.5)
    # 2.0 for three rows is less than 1.5 for two.
    assert simulate(minimize_cost_per_row, COSTS, Trace(trace)).waited_s == (2.0, 2.0, 2.0)
    assert sum(simulate(planned, COSTS, Trace(trace)).waited_s) == min(6.0, 6.0, 5.5)


def test_window_waits_for_a_full_batch_but_not_longer_than_its_delay() -> None:
    assert simulate(window(0.5), COSTS, Trace([0.0])).waited_s == (1.5,)
    full = simulate(window(0.5), COSTS, Trace([0.0, 0.1, 0.2, 0.3]))
    assert full.waited_s == pytest.approx((2.3, 2.2, 2.1, 2.0))
    assert full.n_batches == 1


def test_callers_of_a_closed_loop_wait_for_their_answer() -> None:
    outcome = simulate(pad_up, COSTS, ClosedLoop(random.Random(1), n_callers=4, think_s=0.1, length_s=50.0))
    assert 25 < len(outcome.waited_s) <= 4 * 50
    assert max(outcome.waited_s) < 4.0  # one batch that runs, and one's own
    assert outcome.rows_s < 2.0  # four in two seconds at best


@pytest.mark.parametrize("trace", [poisson, diurnal, lambda rng, **kw: bursts(rng, n_rows=8, **kw)])
def test_traces_keep_their_rate_and_are_the_same_for_the_same_seed(trace: object) -> None:
    assert callable(trace)
    times_s = trace(random.Random(5), rate=100.0, length_s=100.0).times_s
    assert len(times_s) == pytest.approx(10_000, rel=0.1)
    assert times_s == tuple(sorted(times_s))
    assert times_s == trace(random.Random(5), rate=100.0, length_s=100.0).times_s


def test_diurnal_load_peaks_in_the_middle() -> None:
    times_s = diurnal(random.Random(5), rate=100.0, length_s=100.0).times_s
    middle = sum(40 < at_s < 60 for at_s in times_s)
    ends = sum(at_s < 10 or at_s > 90 for at_s in times_s)
    assert middle > 5 * ends
