from __future__ import annotations

import pytest

from server.batching.arrivals import ArrivalRate


def fed(rate: ArrivalRate, *, rows_s: float, since_s: float, until_s: float) -> None:
    """Count rows as they come, and update every millisecond."""
    step_s = 1e-3
    now_s = since_s
    while now_s < until_s:
        now_s += step_s
        rate.n_counted += round(rows_s * step_s)
        rate.update(now_s)


def test_a_steady_stream_shows_its_rate() -> None:
    rate = ArrivalRate()
    fed(rate, rows_s=8_000, since_s=0.0, until_s=0.1)
    assert rate.rows_s == pytest.approx(8_000, rel=0.02)


def test_a_stream_that_ended_is_forgotten_in_some_tens_of_milliseconds() -> None:
    rate = ArrivalRate()
    fed(rate, rows_s=8_000, since_s=0.0, until_s=0.1)
    rate.update(0.15)
    assert rate.rows_s < 10


def test_updates_in_quick_succession_lose_no_row() -> None:
    rate = ArrivalRate()
    rate.update(0.0)
    for tick in range(1, 1_001):
        rate.n_counted += 1
        rate.update(tick * 1e-4)
    assert rate.rows_s == pytest.approx(10_000, rel=0.02)


def test_before_anything_is_known_nothing_is_expected() -> None:
    rate = ArrivalRate()
    rate.n_counted += 50
    assert rate.rows_s == 0.0
    rate.update(100.0)
    assert rate.rows_s == 0.0


def test_the_first_milliseconds_already_show_their_rate() -> None:
    rate = ArrivalRate()
    rate.update(0.0)
    fed(rate, rows_s=8_000, since_s=0.0, until_s=2e-3)
    assert rate.rows_s == pytest.approx(8_000, rel=0.02)


def test_of_a_slow_model_more_than_the_last_batch_is_remembered() -> None:
    quick, slow = ArrivalRate(), ArrivalRate(batch_s=0.5)
    for rate in (quick, slow):
        fed(rate, rows_s=8_000, since_s=0.0, until_s=5.0)
        rate.update(5.5)
    assert quick.rows_s < 10
    assert 2_000 < slow.rows_s < 8_000
