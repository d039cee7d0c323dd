"""How many replicas there should be, by the rows that they hold.

Rows, not requests: one request may carry a thousand, and a batch is filled by rows. By Little's law what a replica
holds is what arrives a second times how long it stays, so that a target of rows is a target of load and of waiting at
once; ``rowwise capacity`` says which. Ray's own count of ongoing requests would do for requests of one row that all
pass its router; those that come through a ``Door`` do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["ROWS_METRIC", "Scaling", "replicas_for", "scale_by_rows"]

#: What a replica reports: rows that it has admitted and not answered.
ROWS_METRIC = "rowwise_rows"


class ScalingConfig(Protocol):
    """What is asked of Ray Serve's AutoscalingConfig."""

    def get_target_ongoing_requests(self) -> float:
        """Return the target of one replica."""


class Scaling(Protocol):
    """What is asked of Ray Serve's AutoscalingContext."""

    config: ScalingConfig
    target_num_replicas: int
    #: By metric and replica, the mean over the look-back period.
    aggregated_metrics: Mapping[str, Mapping[Any, float]] | None
    #: Requests that wait for a replica at a proxy.
    total_queued_requests: float


def replicas_for(n_rows: float, *, target_rows: float) -> float:
    """Return with how many replicas each would hold ``target_rows``; not rounded, and 1 at least.

    Errors: ValueError for a target that is no positive number.
    """
    if not target_rows > 0:
        raise ValueError(f"target_rows is {target_rows!r}: expected a positive number")
    return max(1.0, n_rows / target_rows)


def scale_by_rows(context: Scaling) -> tuple[float, dict[str, Any]]:
    """Return how many replicas are wanted, and no state: a policy of Ray Serve, which adds delays, factors and bounds.

    ``target_ongoing_requests`` of its configuration are rows of one replica here. Replicas that have reported nothing
    yet change nothing.
    """
    reported = (context.aggregated_metrics or {}).get(ROWS_METRIC) or {}
    if not reported:
        return float(context.target_num_replicas), {}
    n_rows = sum(reported.values()) + (context.total_queued_requests or 0.0)
    return replicas_for(n_rows, target_rows=context.config.get_target_ongoing_requests()), {}
