"""Cost tables, made once for each curve and scale: their rules take 40 ms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from server.batching import CostTable

__all__ = ["scaled", "table"]


def scaled(curve: Mapping[int, float], scale_s: float) -> dict[int, float]:
    """Return a curve in seconds."""
    return {bucket: cost * scale_s for bucket, cost in curve.items()}


def table(costs_s: Mapping[int, float]) -> CostTable:
    """Return the prepared table of some costs."""
    return _table(tuple(costs_s.items()))


@cache
def _table(costs_s: tuple[tuple[int, float], ...]) -> CostTable:
    return CostTable(dict(costs_s)).prepare()
