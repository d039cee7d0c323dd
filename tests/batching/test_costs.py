"""The cost table against brute force."""

from __future__ import annotations

import math
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.batching import CostTable
from tests.batching.doubles import SMALL_COSTS

COSTS = st.dictionaries(
    st.integers(1, 12), st.floats(0.01, 10.0, allow_nan=False, allow_infinity=False), min_size=1, max_size=5
)


def least_waiting_s(costs: dict[int, float], n_rows: int) -> float:
    @cache
    def waiting(rows: int) -> float:
        if rows <= 0:
            return 0.0
        return min(cost_s * rows + waiting(rows - bucket) for bucket, cost_s in costs.items())

    return waiting(n_rows)


def run_down(table: CostTable, n_rows: int) -> float:
    """Total waiting of following the table's decisions."""
    waiting_s = 0.0
    while n_rows > 0:
        bucket = table.best(n_rows)
        waiting_s += table.cost(bucket) * n_rows
        n_rows -= bucket
    return waiting_s


@given(costs=COSTS, n_rows=st.integers(1, 60))
def test_following_the_decisions_gives_the_least_total_waiting(costs: dict[int, float], n_rows: int) -> None:
    table = CostTable(costs)
    n_rows = min(n_rows, 8 * max(costs))
    assert run_down(table, n_rows) == pytest.approx(least_waiting_s(costs, n_rows))


@given(costs=COSTS, n_rows=st.integers(1, 60))
def test_rows_can_be_cleared_in_the_time_that_is_said(costs: dict[int, float], n_rows: int) -> None:
    least_s = [0.0]
    for rows in range(1, n_rows + 1):
        least_s.append(min(cost_s + least_s[max(0, rows - bucket)] for bucket, cost_s in costs.items()))
    clear_s = CostTable(costs).clear_s(n_rows)
    assert least_s[n_rows] <= clear_s * (1 + 1e-9)
    assert clear_s <= (least_s[n_rows] + max(costs.values())) * (1 + 1e-9)


@given(costs=COSTS, n_rows=st.integers(1, 5_000))
def test_a_long_queue_runs_at_the_best_throughput(costs: dict[int, float], n_rows: int) -> None:
    table = CostTable(costs)
    if n_rows > 8 * max(costs):
        bucket = table.best(n_rows)
        assert table.cost(bucket) / bucket == table.row_s
    assert table.clear_s(n_rows) >= n_rows * table.row_s * (1 - 1e-9)


@given(costs=COSTS, n_rows=st.integers(1, 20), budget_s=st.floats(0.001, 12.0))
def test_best_within_takes_the_least_cost_per_row_that_fits(
    costs: dict[int, float], n_rows: int, budget_s: float
) -> None:
    fitting = {bucket: cost_s / min(bucket, n_rows) for bucket, cost_s in costs.items() if cost_s <= budget_s}
    bucket = CostTable(costs).best_within(n_rows, budget_s)
    if bucket is None:
        assert not fitting
    else:
        assert fitting[bucket] == min(fitting.values())


def test_rows_pad_up_when_that_is_cheaper_than_two_calls() -> None:
    assert CostTable({1: 1.0, 4: 1.5}).best(3) == 4


def test_rows_batch_down_when_a_padded_bucket_costs_more_than_the_rest_alone() -> None:
    assert CostTable({1: 0.1, 4: 1.0, 8: 9.0}).best(5) in {1, 4}


def test_a_bucket_slower_than_a_larger_one_is_never_chosen() -> None:
    table = CostTable({1: 1.0, 2: 5.0, 4: 2.0})
    assert {table.best(n_rows) for n_rows in range(1, 100)} <= {1, 4}


def test_equal_waiting_goes_to_the_bucket_that_pads_less() -> None:
    assert CostTable({2: 1.0, 4: 1.0}).best(2) == 2


def test_the_table_knows_its_quickest_and_its_densest_bucket() -> None:
    table = CostTable(SMALL_COSTS)
    assert (table.buckets, table.quickest_s, table.row_s) == ((1, 2, 4, 8), 1.0, 0.3)


@pytest.mark.parametrize("costs", [{}, {0: 1.0}, {-2: 1.0}, {1: 0.0}, {1: -1.0}, {1: math.nan}, {1: math.inf}])
def test_costs_that_make_no_sense_are_refused(costs: dict[int, float]) -> None:
    with pytest.raises(ValueError, match=r"bucket|cost"):
        CostTable(costs)
