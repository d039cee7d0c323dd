"""The rules for queues under load, against the exact process in virtual time and against limits that are known."""

from __future__ import annotations

import random
import statistics

import pytest

from server.batching import CostTable
from server.batching.simulation import Choice, Trace, planned, poisson, simulate
from server.batching.under_load import LoadRules

US = 1e-6
MLP = {1: 32 * US, 2: 38 * US, 4: 38 * US, 8: 44 * US, 16: 55 * US, 32: 90 * US, 64: 160 * US}
LSTM = {1: 680 * US, 2: 1140 * US, 4: 1515 * US, 8: 2700 * US, 16: 5170 * US, 32: 9760 * US, 64: 17860 * US}


def test_a_model_whose_cost_grows_with_its_rows_runs_them_one_by_one() -> None:
    rules = LoadRules({bucket: 100e-6 * bucket for bucket in (1, 2, 4, 8, 16, 32, 64)})
    for level in range(12):
        assert {rules.bucket(level, n_rows) for n_rows in range(1, rules.most_rows + 1)} == {1}


def test_a_model_with_a_large_fixed_cost_batches_hard() -> None:
    rules = LoadRules({1: 1.0, 2: 1.01, 4: 1.02, 8: 1.04})
    level = rules.level(0.9)
    assert level is not None
    assert [rules.bucket(level, n_rows) for n_rows in (1, 2, 3, 5, 8, 20)] == [1, 2, 4, 8, 8, 8]


def test_a_long_queue_runs_the_more_efficiently_the_more_load_there_is() -> None:
    rules = LoadRules(LSTM)
    levels = [rules.level(load) for load in (0.1, 0.5, 0.95)]
    for n_rows in range(64, 190):
        chosen = [rules.bucket(level, n_rows) for level in levels if level is not None]
        per_row = [LSTM[bucket] / bucket for bucket in chosen]
        assert per_row == sorted(per_row, reverse=True)
    assert rules.bucket(11, 190) == 64


def test_the_nearest_load_is_taken_and_hardly_any_is_none() -> None:
    assert LoadRules.level(0.0) is None
    assert LoadRules.level(0.02) is None
    levels = [LoadRules.level(load) for load in (0.03, 0.07, 0.09, 0.94, 5.0)]
    assert levels == [0, 0, 1, 11, 11]


def test_rules_depend_on_the_shape_of_the_costs_alone() -> None:
    one, thousand = LoadRules(MLP), LoadRules({bucket: 1000 * cost for bucket, cost in MLP.items()})
    for level in range(12):
        for n_rows in range(1, one.most_rows + 1):
            assert one.bucket(level, n_rows) == thousand.bucket(level, n_rows)


@pytest.mark.parametrize(("costs", "load"), [(MLP, 0.6), (MLP, 0.9), (LSTM, 0.6), (LSTM, 0.9)])
def test_no_single_change_of_a_rule_waits_less(costs: dict[int, float], load: float) -> None:
    """The best rule can't be improved anywhere: each bucket is tried at some numbers of rows, over long traces."""
    table = CostTable(costs).prepare()
    rate = load / table.row_s
    traces = [poisson(random.Random(seed), rate=rate, length_s=1_500 / rate).times_s for seed in range(3)]

    def mean_s(changed_at: int | None = None, bucket: int = 0) -> float:
        def policy(costs: CostTable, queue: object, _now_s: float) -> Choice:
            n_rows = queue.n_rows  # type: ignore[attr-defined]
            return Choice(bucket if n_rows == changed_at else costs.best(n_rows, load))

        return statistics.mean(simulate(policy, table, Trace(times_s)).mean_s for times_s in traces)

    best_s = mean_s()
    others = [mean_s(n_rows, bucket) for n_rows in (3, 6, 12) for bucket in (1, 4, 8, 16)]
    assert min(others) > 0.985 * best_s
    assert statistics.mean(others) > best_s


def test_buckets_of_thousands_of_rows_and_single_buckets_have_rules_too() -> None:
    large = LoadRules({bucket: 1.0 + bucket / 1000 for bucket in (1, 16, 256, 4096)})
    assert large.bucket(11, large.most_rows) == 4096
    assert LoadRules({4: 1.0}).bucket(5, 7) == 4


def test_the_planner_is_never_far_above_the_best_of_the_other_policies() -> None:
    """A small part of what ``python -m benchmarks.planner`` prints."""
    from server.batching.simulation import batch_down, minimize_cost_per_row, pad_up

    for costs in (MLP, LSTM):
        table = CostTable(costs).prepare()
        for load in (0.3, 0.9):
            rate = load / table.row_s
            times_s = poisson(random.Random(5), rate=rate, length_s=1_000 / rate).times_s
            waits = {
                policy: simulate(policy, table, Trace(times_s)).mean_s
                for policy in (planned, pad_up, batch_down, minimize_cost_per_row)
            }
            assert waits[planned] <= 1.03 * min(waits.values())
