"""The planner's choices as they are drawn: those that it would make."""

from __future__ import annotations

from itertools import pairwise

import pytest

from server.batching import CostTable
from server.web.console.planning import plan_json


@pytest.mark.parametrize("is_prepared", [False, True])
def test_the_runs_are_what_the_table_answers_for_every_number_of_rows(*, is_prepared: bool) -> None:
    table = CostTable({1: 1e-3, 2: 1.3e-3, 8: 2e-3, 32: 5e-3})
    if is_prepared:
        table.prepare()
    (group,) = plan_json({(): table})
    assert group["most_rows"] == 64
    for choice in group["choices"]:
        runs = choice["runs"]
        assert runs[0][0] == 1
        for n_rows in range(1, 65):
            bucket = next(bucket for first, bucket in reversed(runs) if first <= n_rows)
            assert bucket == table.best(n_rows, choice["load"])
        assert all(one[1] != other[1] for one, other in pairwise(runs)), "runs are as long as they can be"


def test_groups_are_told_apart_by_their_lengths() -> None:
    table = CostTable({1: 1e-3})
    assert [group["lengths"] for group in plan_json({(16,): table, (4,): table})] == [[4], [16]]
