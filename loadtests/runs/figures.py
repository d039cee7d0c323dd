"""Rates, quantiles, errors and curves of what was observed.

Counted is what was due after the warm-up. Latency is that of right answers, from when a request was due; one without an
answer counts with the time until it was given up, so that a server can't look quick by not answering. Refusals and
other errors, which may be quick, have no part in it. Throughput is that of right answers read within the measured time.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from loadtests.driver import percentile
from loadtests.runs.observations import Column, Observations

__all__ = ["Curves", "Failure", "Figures", "Interval", "curves", "figures", "figures_by_model", "timeline"]

#: These ended without an answer. The server says 504 where it gave a request up by the time that it was told.
_UNANSWERED = ("no answer", "never sent", "status 504")
_N_INTERVALS = 60
_N_BINS = 48
#: Shares at which the distribution is drawn: dense where it is looked at.
_SHARES = (*np.linspace(0, 0.9, 46), *(1 - np.geomspace(0.1, 0.0001, 40)[1:]), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How many requests ended in one way, and an example of it."""

    kind: str
    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run in numbers. Units: milliseconds and requests a second.

    ``offered_per_s`` is what was due; ``late_p99_ms`` how late requests were sent, after they were due. ``n_latencies``
    is how many the quantiles are of.
    """

    n_requests: int
    n_right: int
    n_failed: int
    failed_share: float
    measured_s: float
    requests_per_s: float
    offered_per_s: float
    n_latencies: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float
    late_p99_ms: float
    failures: tuple[Failure, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "failures": [asdict(failure) for failure in self.failures]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """What ended within one stretch of the measured time. Quantiles are None where nothing was answered."""

    at_s: float
    length_s: float
    requests_per_s: float
    failed_per_s: float
    p50_ms: float | None
    p99_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The distribution: counts between ``edges_ms`` (one more than counts), and ``latency_ms`` at ``shares``."""

    edges_ms: tuple[float, ...]
    counts: tuple[int, ...]
    shares: tuple[float, ...]
    latency_ms: tuple[float, ...]


class _Masks:
    """Which rows count, and how."""

    def __init__(self, seen: Observations, model: int | None = None) -> None:
        counted = seen.due_s >= seen.warmup_s
        within = (seen.done_s >= seen.warmup_s) & (seen.done_s < seen.elapsed_s)
        if model is not None:
            counted &= seen.model == model
            within &= seen.model == model
        self.counted = counted
        self.is_right = seen.outcome == 0
        self.within = within
        unanswered = [number for number, name in enumerate(seen.outcomes) if name in _UNANSWERED]
        self.waited = self.is_right | np.isin(seen.outcome, unanswered)


def figures(seen: Observations, *, model: int | None = None) -> Figures:
    """Return the numbers of a run, of all models or of one."""
    masks = _Masks(seen, model)
    measured_s = max(seen.elapsed_s - seen.warmup_s, 1e-9)
    n_requests = int(masks.counted.sum())
    n_right = int((masks.counted & masks.is_right).sum())
    ordered = np.sort(_waits(seen, masks.counted & masks.waited))
    late = np.sort((seen.sent_s - seen.due_s)[masks.counted & ~np.isnan(seen.sent_s)])
    return Figures(
        n_requests=n_requests,
        n_right=n_right,
        n_failed=n_requests - n_right,
        failed_share=(n_requests - n_right) / n_requests if n_requests else 0.0,
        measured_s=measured_s,
        requests_per_s=float((masks.within & masks.is_right).sum()) / measured_s,
        offered_per_s=n_requests / measured_s,
        n_latencies=len(ordered),
        mean_ms=float(ordered.mean()) if len(ordered) else 0.0,
        p50_ms=float(percentile(ordered, 0.5)),
        p90_ms=float(percentile(ordered, 0.9)),
        p99_ms=float(percentile(ordered, 0.99)),
        p999_ms=float(percentile(ordered, 0.999)),
        max_ms=float(percentile(ordered, 1.0)),
        late_p99_ms=float(percentile(late, 0.99)) * 1e3,
        failures=tuple(
            Failure(kind=name, count=count, example=seen.examples.get(name, ""))
            for number, name in enumerate(seen.outcomes)
            if number and (count := int((masks.counted & (seen.outcome == number)).sum()))
        ),
    )


def figures_by_model(seen: Observations) -> dict[str, Figures]:
    """Return the numbers of each model."""
    return {name: figures(seen, model=number) for number, name in enumerate(seen.models)}


def timeline(seen: Observations) -> list[Interval]:
    """Return the measured time in stretches of equal length, at most sixty, of half a second at least."""
    measured_s = seen.elapsed_s - seen.warmup_s
    if measured_s <= 0:
        return []
    n = max(1, min(_N_INTERVALS, int(measured_s / 0.5)))
    length_s = measured_s / n
    masks = _Masks(seen)
    place = np.floor((seen.done_s - seen.warmup_s) / length_s).astype(np.int64)
    found = []
    for index in range(n):
        here = masks.within & (place == index)
        ordered = np.sort(_waits(seen, here & masks.waited))
        found.append(
            Interval(
                at_s=index * length_s,
                length_s=length_s,
                requests_per_s=float((here & masks.is_right).sum()) / length_s,
                failed_per_s=float((here & ~masks.is_right).sum()) / length_s,
                p50_ms=float(percentile(ordered, 0.5)) if len(ordered) else None,
                p99_ms=float(percentile(ordered, 0.99)) if len(ordered) else None,
            )
        )
    return found


def curves(seen: Observations) -> Curves:
    """Return the distribution of latencies: a histogram of bins of equal ratio, and the latency at each share."""
    masks = _Masks(seen)
    ordered = np.sort(_waits(seen, masks.counted & masks.waited))
    if not len(ordered):
        return Curves(edges_ms=(), counts=(), shares=(), latency_ms=())
    low, high = max(float(ordered[0]), 1e-3), max(float(ordered[-1]), 1e-3)
    low, high = (low, high * (1 + 1e-9)) if high / low > 1.01 else (low / 1.1, high * 1.1)
    edges = np.geomspace(low, high, _N_BINS + 1)
    edges[0] = min(edges[0], float(ordered[0]))
    edges[-1] = max(edges[-1], float(ordered[-1]))
    counts, _ = np.histogram(ordered, edges)
    # A share that so few values can't tell apart from the last one is left out.
    shares = [share for share in _SHARES if share == 1.0 or math.ceil(share * len(ordered)) < len(ordered)]
    return Curves(
        edges_ms=tuple(map(float, edges)),
        counts=tuple(map(int, counts)),
        shares=tuple(map(float, shares)),
        latency_ms=tuple(float(percentile(ordered, share)) for share in shares),
    )


def _waits(seen: Observations, rows: Column) -> Column:
    waits: Column = (seen.done_s - seen.due_s)[rows] * 1e3
    return waits
