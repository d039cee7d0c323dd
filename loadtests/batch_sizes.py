"""How large the batches were: a server's own histogram, read from its ``/metrics``."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["BatchSizes", "bars", "batch_sizes", "since"]

_HISTOGRAM = "rowwise_batch_rows"
_BAR_COLUMNS = 40

#: Batches by the largest size of their class, in rows; classes ascend, the last one may be infinite.
BatchSizes = dict[float, int]


def batch_sizes(url: str, model: str) -> BatchSizes:
    """Return how many batches of each size class a model has run, over all its versions."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    cumulative: dict[float, float] = {}
    for family in text_string_to_metric_families(text):
        if family.name != _HISTOGRAM:
            continue
        for sample in family.samples:
            if sample.name == f"{_HISTOGRAM}_bucket" and sample.labels["model"] == model:
                limit = float(sample.labels["le"])
                cumulative[limit] = cumulative.get(limit, 0.0) + sample.value
    sizes, below = {}, 0.0
    for limit in sorted(cumulative):
        sizes[limit] = int(cumulative[limit] - below)
        below = cumulative[limit]
    return sizes


def since(before: BatchSizes, after: BatchSizes) -> BatchSizes:
    """Return what was run between two readings."""
    return {limit: count - before.get(limit, 0) for limit, count in after.items()}


def bars(sizes: Mapping[float, int]) -> list[str]:
    """Return one line for each size class, from the smallest to the largest that occurred."""
    used = [limit for limit, count in sizes.items() if count]
    if not used:
        return ["no batches"]
    total, most = sum(sizes.values()), max(sizes.values())
    lines, above = [], 0.0
    for limit in sorted(sizes):
        if limit > max(used):
            break
        if limit == float("inf"):
            rows = f"over {above:.0f}"
        else:
            rows = f"{limit:.0f}" if limit - above <= 1 else f"{above + 1:.0f}-{limit:.0f}"
        bar = "#" * round(_BAR_COLUMNS * sizes[limit] / most)
        lines.append(f"{rows:>9} rows  {sizes[limit]:>7,}  {sizes[limit] / total:>4.0%}  {bar}".rstrip())
        above = limit
    return lines
