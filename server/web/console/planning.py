"""What the planner would run, for every number of waiting rows and some loads: its rules, drawn on its costs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from server.batching import CostTable

__all__ = ["plan_json"]

#: Share of the best throughput that arrives; 0: nobody else comes.
_LOADS = (0.0, 0.2, 0.5, 0.8, 0.95)
#: Rows up to which it is asked, in largest buckets and at most: it is for a picture.
_SPAN = 2
_MOST_ROWS = 1_024


def plan_json(tables: Mapping[tuple[int, ...], CostTable]) -> list[dict[str, Any]]:
    """Return, for each padded length, the costs that are planned with and the bucket chosen, in plain JSON types.

    Units: milliseconds. ``runs`` are ``[first number of waiting rows, bucket]``, each up to the next.
    """
    return [_of_group(lengths, costs) for lengths, costs in sorted(tables.items())]


def _of_group(lengths: tuple[int, ...], costs: CostTable) -> dict[str, Any]:
    most_rows = min(_SPAN * costs.buckets[-1], _MOST_ROWS)
    return {
        "lengths": list(lengths),
        "costs": [{"rows": rows, "ms": round(cost_s * 1e3, 6)} for rows, cost_s in costs.by_bucket.items()],
        "most_rows": most_rows,
        "choices": [{"load": load, "runs": _runs(costs, load, most_rows)} for load in _LOADS],
    }


def _runs(costs: CostTable, load: float, most_rows: int) -> list[list[int]]:
    by_bucket = groupby(range(1, most_rows + 1), key=lambda n_rows: costs.best(n_rows, load))
    return [[next(rows), bucket] for bucket, rows in by_bucket]
