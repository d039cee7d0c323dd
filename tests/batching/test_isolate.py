from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.batching.errors import ExampleFailed
from server.batching.isolate import isolate


class Rows:
    """Rows of which some are bad: a run of any of them fails, and says which it met first."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.n_runs = 0

    def run(self, rows: Sequence[int]) -> list[int]:
        self.n_runs += 1
        met = [row for row in rows if row in self.bad]
        if met:
            raise ExampleFailed(f"row {met[0]} is bad")
        return [row * 10 for row in rows]


@given(st.integers(1, 70).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_k_bad_rows_give_k_errors_of_their_own_and_every_other_row_its_result(case: tuple[int, set[int]]) -> None:
    n_rows, bad = case
    rows = Rows(bad)
    found = isolate(range(n_rows), ExampleFailed(f"row {min(bad)} is bad"), rows.run)
    assert found.errors.keys() == bad
    assert {row: str(error) for row, error in found.errors.items()} == {row: f"row {row} is bad" for row in bad}
    results = {row: value for ran, outputs in found.runs for row, value in zip(ran, outputs, strict=True)}
    assert results == {row: row * 10 for row in range(n_rows) if row not in bad}
    assert rows.n_runs <= len(bad) * (math.ceil(math.log2(n_rows)) + 1)


def test_a_row_that_fails_alone_is_not_run_again() -> None:
    rows = Rows({0})
    assert isolate([0], ExampleFailed("alone"), rows.run).errors.keys() == {0}
    assert rows.n_runs == 0


def test_a_failure_that_is_no_rows_fault_ends_the_search() -> None:
    def run(rows: Sequence[int]) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        isolate([0, 1], ExampleFailed("first"), run)
