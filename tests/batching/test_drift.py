"""Costs that follow what is measured: slowly, and never for one odd batch."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from server.batching import CostDrift

COSTS = {1: 1.0, 8: 2.0, 64: 10.0}


class Told:
    """Collects new costs, and adopts them at once unless told otherwise."""

    def __init__(self) -> None:
        self.drift = CostDrift(COSTS, self._take)
        self.costs: dict[int, float] = dict(COSTS)
        self.n_told = 0

    def _take(self, costs_s: Mapping[int, float]) -> None:
        self.costs = dict(costs_s)
        self.n_told += 1


def run(
    told: Told, n_batches: int, *, factor: float, buckets: tuple[int, ...] = (1, 8, 64), adopts: bool = True
) -> None:
    rng = random.Random(3)
    for _ in range(n_batches):
        bucket = rng.choice(buckets)
        told.drift.ran(bucket, COSTS[bucket] * factor * rng.uniform(0.8, 1.25))
        if adopts:
            told.drift.adopted()


def test_a_machine_that_became_slower_is_followed_for_all_buckets() -> None:
    told = Told()
    run(told, 2_000, factor=1.6)
    for bucket, cost_s in COSTS.items():
        assert told.costs[bucket] == pytest.approx(1.6 * cost_s, rel=0.15)


def test_what_has_become_slower_and_quick_again_is_followed_back_in_buckets_that_did_not_run() -> None:
    told = Told()
    run(told, 1_500, factor=2.0)
    run(told, 3_000, factor=1.0, buckets=(1, 8))
    assert told.costs[64] == pytest.approx(COSTS[64], rel=0.25)


def test_one_bucket_can_change_without_the_others() -> None:
    told = Told()
    for _ in range(1_000):
        for bucket, cost_s in COSTS.items():
            told.drift.ran(bucket, cost_s * (1.5 if bucket == 8 else 1.0) * 1.0000001)
            told.drift.adopted()
            told.drift.ran(bucket, cost_s * (1.5 if bucket == 8 else 1.0) * 0.9999999)
            told.drift.adopted()
    assert told.costs[8] / COSTS[8] > 1.2 * told.costs[1] / COSTS[1]


def test_batches_that_were_interrupted_change_nothing() -> None:
    told = Told()
    rng = random.Random(7)
    for number in range(2_000):
        odd = 1_000.0 if number % 20 == 0 else 1.0
        told.drift.ran(8, COSTS[8] * odd * rng.uniform(0.8, 1.25))
        told.drift.adopted()
    assert told.costs[8] == pytest.approx(COSTS[8], rel=0.15)


def test_steps_are_small_and_nothing_is_told_twice() -> None:
    told = Told()
    run(told, 300, factor=100.0, adopts=False)
    assert told.n_told == 1
    assert max(told.costs[bucket] / COSTS[bucket] for bucket in COSTS) < 1.2


def test_costs_stay_within_bounds_whatever_is_measured() -> None:
    told = Told()
    run(told, 20_000, factor=1e9, buckets=(8,))
    assert told.costs[8] <= COSTS[8] * 4.1
