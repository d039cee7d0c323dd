"""What the capacity model says of a queue, against serving the same load in virtual time."""

from __future__ import annotations

import random
from functools import cache

import pytest

from server.batching.costs import CostTable
from server.batching.simulation import ReplicaPlan, plan_replicas, planned, poisson, simulate, waiting_at

#: A dense network, a recurrent one, one whose cost grows with its rows, one with a large fixed cost, one bucket.
CURVES = {
    "mlp": {1: 60e-6, 8: 100e-6, 32: 180e-6, 64: 300e-6},
    "lstm": {1: 1.5e-3, 2: 1.8e-3, 4: 2.2e-3, 8: 3e-3, 16: 4.8e-3, 32: 8.5e-3},
    "linear": {1: 1e-3, 2: 2e-3, 4: 4e-3},
    "fixed": {1: 10e-3, 8: 11e-3, 32: 13e-3},
    "alone": {1: 2e-3},
}


@cache
def lstm(headroom: float) -> ReplicaPlan:
    """What serves 10,000 rows/s of the recurrent network: to find it takes seconds."""
    return plan_replicas(CostTable(CURVES["lstm"]).prepare(), rate=10_000, p99_s=8e-3, headroom=headroom)


@pytest.mark.parametrize("load", [0.3, 0.8])
@pytest.mark.parametrize("curve", CURVES)
def test_waiting_is_what_the_simulator_finds(curve: str, load: float) -> None:
    costs = CostTable(CURVES[curve]).prepare()
    rate = load / costs.row_s
    said = waiting_at(costs, rate=rate)
    found = simulate(planned, costs, poisson(random.Random(1), rate=rate, length_s=15_000 / rate))
    assert said.mean_s == pytest.approx(found.mean_s, rel=0.08)
    assert said.p50_s == pytest.approx(found.quantile_s(0.50), rel=0.10)
    assert said.p99_s == pytest.approx(found.quantile_s(0.99), rel=0.20)
    assert said.batch_rows == pytest.approx(len(found.waited_s) / found.n_batches, rel=0.08)


def test_a_lone_row_on_an_idle_replica_waits_for_its_own_batch_alone() -> None:
    costs = CostTable(CURVES["mlp"]).prepare()
    waiting = waiting_at(costs, rate=1.0)
    assert waiting.p99_s == pytest.approx(60e-6)
    assert waiting.busy == pytest.approx(60e-6, rel=0.01)
    assert waiting.rows_held == pytest.approx(60e-6, rel=0.01)


def test_the_greatest_rate_keeps_the_target_and_a_tenth_more_does_not() -> None:
    costs = CostTable(CURVES["lstm"]).prepare()
    most = lstm(0.0).most_rate
    assert waiting_at(costs, rate=most).p99_s <= 8e-3
    assert waiting_at(costs, rate=1.1 * most).p99_s > 8e-3


def test_replicas_follow_from_the_rate_and_are_checked_by_the_simulator() -> None:
    costs = CostTable(CURVES["lstm"]).prepare()
    plan = lstm(0.0)
    assert plan.replicas == -(-10_000 // plan.most_rate)
    assert plan.waiting.rate == pytest.approx(10_000 / plan.replicas)
    rate = plan.waiting.rate
    found = simulate(planned, costs, poisson(random.Random(2), rate=rate, length_s=15_000 / rate))
    assert found.quantile_s(0.99) < 1.1 * 8e-3
    # One replica fewer would not do by far more than that.
    rate = 10_000 / (plan.replicas - 2)
    fewer = simulate(planned, costs, poisson(random.Random(2), rate=rate, length_s=15_000 / rate))
    assert fewer.quantile_s(0.99) > 8e-3


def test_headroom_takes_more_replicas() -> None:
    assert lstm(0.5).replicas == pytest.approx(2 * lstm(0.0).replicas, abs=1)


def test_a_target_below_a_lone_rows_time_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"a lone row takes 10 ms, and the target is 5 ms"):
        plan_replicas(CostTable(CURVES["fixed"]), rate=10, p99_s=5e-3)


@pytest.mark.parametrize(("rate", "headroom"), [(0.0, 0.0), (float("inf"), 0.0), (1.0, 1.0)])
def test_loads_that_make_no_sense_are_refused(rate: float, headroom: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        plan_replicas(CostTable(CURVES["alone"]), rate=rate, p99_s=1.0, headroom=headroom)


def test_more_than_a_replica_can_do_has_no_steady_state() -> None:
    with pytest.raises(ValueError, match="101% of what one replica can do"):
        waiting_at(CostTable(CURVES["alone"]), rate=1.01 / 2e-3)
