"""How many replicas are wanted, by the rows that they report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from server.replica import replicas_for, scale_by_rows
from server.replica.autoscaling import ROWS_METRIC


@dataclass
class Config:
    target: float = 32.0

    def get_target_ongoing_requests(self) -> float:
        return self.target


@dataclass
class Context:
    aggregated_metrics: dict[str, dict[Any, float]] | None
    target_num_replicas: int = 3
    total_queued_requests: float = 0.0
    config: Config = field(default_factory=Config)


@pytest.mark.parametrize(("n_rows", "wanted"), [(0.0, 1.0), (16.0, 1.0), (64.0, 2.0), (80.0, 2.5)])
def test_each_replica_is_to_hold_the_target(n_rows: float, wanted: float) -> None:
    assert replicas_for(n_rows, target_rows=32) == wanted


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan")])
def test_a_target_must_be_positive(target: float) -> None:
    with pytest.raises(ValueError, match="expected a positive number"):
        replicas_for(1.0, target_rows=target)


def test_rows_of_all_replicas_and_requests_that_wait_at_proxies_count() -> None:
    context = Context({ROWS_METRIC: {"a": 40.0, "b": 50.0}}, total_queued_requests=6.0)
    assert scale_by_rows(context) == (3.0, {})


@pytest.mark.parametrize("metrics", [None, {}, {ROWS_METRIC: {}}, {"another": {"a": 9.0}}])
def test_replicas_that_report_nothing_change_nothing(metrics: dict[str, dict[Any, float]] | None) -> None:
    assert scale_by_rows(Context(metrics, target_num_replicas=3)) == (3.0, {})
