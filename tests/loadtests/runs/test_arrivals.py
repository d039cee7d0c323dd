"""When requests are due, to whom they go, and how a load is divided."""

from __future__ import annotations

import statistics
from itertools import islice, pairwise

import pytest

from loadtests.runs.arrivals import due_times, turns
from loadtests.runs.load import Load


def test_constant_arrivals_are_evenly_spaced_from_their_offset() -> None:
    times = list(islice(due_times("constant", rate=4.0, offset=0.5), 5))
    assert times == pytest.approx([0.125, 0.375, 0.625, 0.875, 1.125])


def test_processes_of_constant_arrivals_fill_each_others_gaps() -> None:
    whole = list(islice(due_times("constant", rate=10.0), 20))
    parts = [islice(due_times("constant", rate=5.0, offset=index / 2), 10) for index in range(2)]
    assert sorted(time for part in parts for time in part) == pytest.approx(whole)


def test_poisson_arrivals_have_the_mean_and_the_spread_of_an_exponential() -> None:
    times = list(islice(due_times("poisson", rate=50.0, seed=3), 20_000))
    gaps = [after - before for before, after in pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(0.02, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.02, rel=0.05)


def test_the_same_seed_gives_the_same_times_and_another_one_others() -> None:
    first, again, other = (list(islice(due_times("poisson", rate=5.0, seed=seed), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_mix_has_its_weights_and_is_no_pattern() -> None:
    order = turns([3.0, 1.0], seed=5)
    assert sum(order) / len(order) == pytest.approx(0.25, abs=0.02)
    assert set(turns([2.0], seed=5)) == {0}
    assert list(order[:8]) != list(order[8:16])


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_parts_of_a_load_are_the_whole(n: int) -> None:
    closed = Load(callers=10, max_requests=1_001)
    parts = [closed.share(index, n) for index in range(n)]
    assert sum(part.callers or 0 for part in parts) == 10
    assert sum(part.max_requests for part in parts) == 1_001
    opened = [Load(rate=30.0).share(index, n) for index in range(n)]
    assert sum(part.rate or 0 for part in opened) == pytest.approx(30)
    assert len({part.seed for part in opened}) == n
