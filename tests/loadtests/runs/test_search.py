"""The search for a capacity, without a server: who holds is a function of the rate."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from loadtests.runs.search import Search


def carried_out(search: Search, holds: Callable[[float], bool], **options: bool) -> list[float]:
    """Run a search and return the rates that it tried."""
    tried = []
    while (rate := search.next_rate) is not None:
        tried.append(rate)
        search.tell(holds=holds(rate), **options)
        assert len(tried) <= 50, "it has to end"
    return tried


@pytest.mark.parametrize("first_rate", [1.0, 40.0, 777.0, 5_000.0])
def test_a_sharp_edge_is_found_within_the_precision_and_confirmed(first_rate: float) -> None:
    search = Search(first_rate=first_rate, highest_rate=1e6, max_steps=40)
    tried = carried_out(search, lambda rate: rate <= 800)
    found = search.capacity
    assert found.rate is not None
    assert 800 / 1.05 <= found.rate <= 800
    assert found.is_confirmed
    assert tried.count(found.rate) == 2
    assert tried[-1] == found.rate


def test_the_highest_rate_is_not_exceeded() -> None:
    search = Search(first_rate=10, highest_rate=100)
    tried = carried_out(search, lambda rate: True)
    assert max(tried) == search.capacity.rate == 100
    assert search.capacity.is_confirmed
    assert "highest rate" in search.capacity.reason


def test_a_server_that_carries_nothing_has_no_capacity() -> None:
    search = Search(first_rate=100, highest_rate=1e6)
    tried = carried_out(search, lambda rate: False)
    assert search.capacity.rate is None
    assert "not even one" in search.capacity.reason
    assert tried == sorted(tried, reverse=True)


def test_a_step_that_held_by_luck_is_not_the_answer() -> None:
    lucky = itertools.count()

    def holds(rate: float) -> bool:
        # One step above the true edge of 500 holds, once.
        return rate <= 500 or (600 < rate < 900 and next(lucky) == 0)

    search = Search(first_rate=400, highest_rate=1e6, max_steps=40)
    carried_out(search, holds)
    assert search.capacity.is_confirmed
    assert search.capacity.rate is not None
    assert 500 / 1.05 <= search.capacity.rate <= 500


def test_a_step_that_missed_by_a_moment_of_other_work_is_tried_again() -> None:
    unlucky = itertools.count()

    def holds(rate: float) -> bool:
        return rate <= 800 and not (rate == 200 and next(unlucky) == 0)

    search = Search(first_rate=100, highest_rate=1e6, max_steps=40)
    tried = carried_out(search, holds, is_clear=False)
    assert tried[:4] == [100, 200, 200, 400]
    assert search.capacity.rate is not None
    assert search.capacity.rate > 800 / 1.05


def test_the_limit_of_the_generator_ends_the_search_and_is_said() -> None:
    search = Search(first_rate=100, highest_rate=1e6)
    carried_out(search, lambda rate: rate < 1_000, is_generator_limit=True)
    assert search.capacity.rate == 800
    assert not search.capacity.is_confirmed
    assert "load generator itself" in search.capacity.reason


def test_steps_are_bounded_and_so_is_an_interruption() -> None:
    search = Search(first_rate=1, highest_rate=1e9, max_steps=5)
    assert len(carried_out(search, lambda rate: True)) == 5
    assert "5 steps" in search.capacity.reason
    stopped = Search(first_rate=1, highest_rate=1e9)
    stopped.stop("interrupted")
    assert stopped.next_rate is None
    assert stopped.capacity.reason == "interrupted"
