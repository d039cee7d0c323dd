"""Finding bad rows: the right ones, in few runs, and no more runs than the theory allows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.batching.errors import ExampleFailed
from server.batching.isolate import Isolated, isolate, runs_of_slice


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


def log2_up(n_rows: int) -> int:
    return (n_rows - 1).bit_length()


def most_runs(n_rows: int, n_bad: int) -> int:
    """What the module's theory allows."""
    log, whole = log2_up(n_rows), 1 << log2_up(n_rows)
    if n_bad == 1 or 4 * n_rows <= 3 * whole:
        return n_bad * log + 1
    return n_bad * log + (2 if 8 * n_rows <= 7 * whole else 3)


def search(n_rows: int, bad: set[int]) -> tuple[Isolated[list[int]], Rows]:
    rows = Rows(bad)
    return isolate(range(n_rows), ExampleFailed(f"row {min(bad)} is bad"), rows.run), rows


CASES = st.integers(1, 300).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1, max_size=40))
)


@given(CASES)
def test_k_bad_rows_give_k_errors_of_their_own_and_every_other_row_its_result(case: tuple[int, set[int]]) -> None:
    n_rows, bad = case
    found, rows = search(n_rows, bad)
    assert {row: str(error) for row, error in found.errors.items()} == {row: f"row {row} is bad" for row in bad}
    results = {row: value for ran, outputs in found.runs for row, value in zip(ran, outputs, strict=True)}
    assert results == {row: row * 10 for row in range(n_rows) if row not in bad}
    assert sum(len(ran) for ran, _ in found.runs) == n_rows - len(bad), "a row that worked was run again"
    assert rows.n_runs <= most_runs(n_rows, len(bad))


def test_no_bad_rows_of_up_to_11_cost_more_runs_than_the_theory_says() -> None:
    for n_rows in range(1, 12):
        for n_bad in range(1, n_rows + 1):
            for bad in combinations(range(n_rows), n_bad):
                found, rows = search(n_rows, set(bad))
                assert found.errors.keys() == set(bad)
                assert rows.n_runs <= most_runs(n_rows, n_bad), (n_rows, bad)


def worst_excess(n_rows: int) -> int:
    """Return the most that ``runs - k * L`` can come to, by following both outcomes of every run of the rule."""
    log, half = log2_up(n_rows), 1 << max(0, log2_up(n_rows) - 1)

    @cache
    def after(n_suspects: int, n_aside: int, *, is_first: bool) -> int:
        if n_suspects > 1:
            n_tried = n_suspects - (1 << (log2_up(n_suspects) - 1))
            works = after(n_suspects - n_tried, n_aside, is_first=is_first)
            return 1 + max(works, after(n_tried, n_aside + n_suspects - n_tried, is_first=is_first))
        if n_suspects == 1:
            return -log + tried(n_aside, n_aside if is_first else half)
        return 0

    def tried(n_aside: int, at_once: int) -> int:
        if not n_aside:
            return 0
        n_tried = min(n_aside, at_once)
        return 1 + max(tried(n_aside - n_tried, half), after(n_tried, n_aside - n_tried, is_first=False))

    return after(n_rows, 0, is_first=True)


def test_for_any_number_of_bad_rows_of_up_to_256_the_bound_is_the_one_that_is_promised() -> None:
    for n_rows in range(2, 257):
        assert worst_excess(n_rows) <= most_runs(n_rows, 2) - 2 * log2_up(n_rows), n_rows


def strategy_exists(n_rows: int, spare: int) -> bool:
    """Return whether any strategy finds k bad rows of ``n_rows`` in ``k * L + spare`` runs, whatever k is.

    A run tells whether one of its rows is bad; each good row has to be in a run that worked.
    """
    log = log2_up(n_rows)

    @cache
    def wins(possible: frozenset[int], answered: int, n_runs: int) -> bool:
        if len(possible) == 1:
            (bad,) = possible
            is_open = ((1 << n_rows) - 1) & ~bad & ~answered
            return n_runs + bool(is_open) <= bad.bit_count() * log + spare
        if n_runs + 1 > min(bad.bit_count() for bad in possible) * log + spare:
            return False
        for tried in range(1, (1 << n_rows) - 1):
            works = frozenset(bad for bad in possible if not bad & tried)
            fails = possible - works
            if (
                not tried & answered
                and works
                and fails
                and wins(works, answered | tried, n_runs + 1)
                and wins(fails, answered, n_runs + 1)
            ):
                return True
        return False

    return wins(frozenset(range(1, 1 << n_rows)), 0, 0)


def test_no_strategy_at_all_needs_only_k_times_log_n_and_one_run_for_four_rows() -> None:
    assert strategy_exists(3, 1)
    assert not strategy_exists(3, 0)
    assert not strategy_exists(4, 1)
    assert strategy_exists(4, 2)


@given(CASES)
def test_a_search_in_slices_finds_the_same_rows_and_no_slice_is_long(case: tuple[int, set[int]]) -> None:
    n_rows, bad = case
    errors: set[int] = set()
    answered: set[int] = set()
    total = 0
    rows: Sequence[int] = range(n_rows)
    failure = ExampleFailed("the batch failed")
    while rows:
        runs = Rows(bad)
        found = isolate(rows, failure, runs.run, max_runs=runs_of_slice(len(rows)))
        assert runs.n_runs < runs_of_slice(len(rows)) + log2_up(len(rows)) + 2
        total += runs.n_runs
        errors |= found.errors.keys()
        answered |= {row for ran, _ in found.runs for row in ran}
        # What is not settled runs as a batch of its own, and perhaps all of it works.
        rows = found.unsettled
        if rows:
            total += 1
            if not bad & set(rows):
                answered |= set(rows)
                rows = ()
    assert errors == bad
    assert answered == set(range(n_rows)) - bad
    assert total <= most_runs(n_rows, len(bad)) + len(bad)


def test_a_row_that_fails_alone_is_not_run_again() -> None:
    found, rows = search(1, {0})
    assert found.errors.keys() == {0}
    assert rows.n_runs == 0


def test_a_failure_that_is_no_rows_fault_ends_the_search() -> None:
    def run(rows: Sequence[int]) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        isolate([0, 1], ExampleFailed("first"), run)
