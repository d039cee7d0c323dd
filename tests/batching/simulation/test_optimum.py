"""The best schedule in hindsight, against trying all of them."""

from __future__ import annotations

import random
from functools import cache

import pytest

from server.batching import CostTable
from server.batching.simulation import (
    Trace,
    batch_down,
    bursts,
    diurnal,
    minimize_cost_per_row,
    optimal_waiting_s,
    pad_up,
    planned,
    poisson,
    simulate,
    singles,
    window,
)

CURVES = {
    "fixed cost": {1: 1.0, 2: 1.01, 4: 1.02, 8: 1.04},
    "linear": {1: 1.0, 2: 2.0, 4: 4.0},
    "in steps": {1: 1.0, 2: 1.0, 4: 3.0},
    "a slow one between": {1: 1.0, 2: 1.9, 4: 1.6, 8: 4.0},
}


def by_trying(costs: CostTable, arrivals_s: tuple[float, ...]) -> float:
    """Return the least total waiting over all ways of cutting the rows into batches."""

    @cache
    def best(done: int, free_s: float) -> float:
        if done == len(arrivals_s):
            return 0.0
        totals = []
        for size in range(1, min(costs.buckets[-1], len(arrivals_s) - done) + 1):
            batch = arrivals_s[done : done + size]
            cost_s = min(costs.cost(bucket) for bucket in costs.buckets if bucket >= size)
            end_s = max(free_s, batch[-1]) + cost_s
            totals.append(sum(end_s - arrived_s for arrived_s in batch) + best(done + size, end_s))
        return min(totals)

    return best(0, 0.0)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("seed", range(4))
def test_no_way_of_cutting_the_rows_into_batches_is_better(curve: str, seed: int) -> None:
    costs = CostTable(CURVES[curve])
    rng = random.Random(seed)
    arrivals_s = tuple(sorted(rng.random() * rng.choice([1.0, 4.0, 12.0]) for _ in range(9)))
    # The grid of times may cost a step of it for each batch.
    assert optimal_waiting_s(costs, arrivals_s) == pytest.approx(by_trying(costs, arrivals_s), rel=0.01)


@pytest.mark.parametrize("curve", CURVES)
def test_no_policy_beats_hindsight(curve: str) -> None:
    costs = CostTable(CURVES[curve])
    rate = 0.7 / costs.row_s
    for trace in (
        poisson(random.Random(1), rate=rate, length_s=60 / rate),
        bursts(random.Random(2), rate=rate, length_s=60 / rate, n_rows=4),
        diurnal(random.Random(3), rate=rate, length_s=60 / rate),
    ):
        least_s = optimal_waiting_s(costs, trace.times_s)
        for policy in (planned, singles, pad_up, batch_down, minimize_cost_per_row, window(0.5)):
            total_s = sum(simulate(policy, costs, Trace(trace.times_s)).waited_s)
            assert total_s >= least_s * 0.99


def test_nobody_to_serve_waits_for_nothing() -> None:
    assert optimal_waiting_s(CostTable({1: 1.0}), ()) == 0.0
