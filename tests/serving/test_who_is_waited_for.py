"""Where batches wait for callers who return."""

from __future__ import annotations

from server.app import _returning_s
from server.settings import Settings


def test_a_server_waits_for_callers_as_long_as_it_is_told() -> None:
    assert _returning_s(Settings(returning_wait_ms=2.0)) == 2e-3
    assert _returning_s(Settings(returning_wait_ms=0.0)) == 0.0


def test_an_engine_behind_workers_waits_for_nobody_since_it_does_not_see_who_is_back() -> None:
    assert _returning_s(Settings(http_workers=2)) == 0.0
