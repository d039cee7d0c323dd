"""The batches of the last moments, and why each ran when and as it did.

A record is a few numbers, taken when a batch has ended; the sentences are made when somebody asks for them. No inputs
and no request ids are kept.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from server.batching import Batch, Item, Reason

__all__ = ["BatchLog"]

#: Batches that are remembered: a second or so of a busy server.
_KEPT = 512

_WHY_THEN = {
    Reason.OLDEST: "an executor was free and its first row had waited longest of the models within their share",
    Reason.DEADLINE: "an executor was free and its nearest deadline was in danger",
    Reason.RESCUE: "an executor was free and a deadline could only be met by a quicker bucket than the best one",
    Reason.SHED: "an executor was free; rows that the best bucket would have finished late were given up",
}


class BatchLog:
    """Remembers the last batches. An ``Observer`` of the batching core; ``recent`` is called on the same thread."""

    def __init__(self) -> None:
        self._records: deque[tuple[Batch, float, float, int, str | None, list[float] | None]] = deque(maxlen=_KEPT)
        self._keeps_waits = False
        #: What the batcher's clock shows, in seconds since 1970.
        self._epoch_s = time.time() - time.monotonic()

    def dispatched(self, batch: Batch) -> None:
        """Nothing is known before it has run."""

    def finished(self, batch: Batch, error: BaseException | None) -> None:
        """Take a record."""
        started_s = batch.dispatched_s
        waits_s = [started_s - item.arrived_s for item, _, _ in batch.spans]
        name = None if error is None else type(error).__name__
        kept = waits_s if self._keeps_waits else None
        self._records.append((batch, max(waits_s), min(waits_s), len(waits_s), name, kept))

    def dropped(self, item: Item) -> None:
        """It ran in no batch."""

    def keep_waits(self, *, keeps: bool) -> None:
        """Remember of each batch from now on how long every request of it waited, or not: it is memory."""
        self._keeps_waits = keeps

    def latencies_s(self, *, since_s: float, most: int) -> dict[tuple[str, int, str], list[float]]:
        """Return seconds from admission to outputs, of the last requests up to ``most``, by their entry point.

        Of batches that ended after ``since_s``, without an error, as far as they and their waits are remembered.
        """
        found: dict[tuple[str, int, str], list[float]] = {}
        n_found = 0
        for batch, _, _, n_requests, error, waits_s in reversed(self._records):
            if batch.finished_s < since_s or n_found >= most:
                break
            if error is None and waits_s is not None:
                key: Any = batch.group.key
                took_s = batch.finished_s - batch.dispatched_s
                found.setdefault((key.model, key.version, key.entry), []).extend(
                    [wait_s + took_s for wait_s in waits_s]
                )
                n_found += n_requests
        return found

    def recent(
        self,
        *,
        model: str | None = None,
        limit: int = _KEPT,
        covers: Callable[[str], bool] = lambda _: True,
    ) -> list[dict[str, Any]]:
        """Return the newest batches first, of one model or of all that ``covers`` lets be seen.

        Times are milliseconds, if not named otherwise.
        """
        found: list[dict[str, Any]] = []
        for batch, longest_s, shortest_s, n_requests, error, _ in reversed(self._records):
            key: Any = batch.group.key
            if (model is not None and key.model != model) or not covers(key.model):
                continue
            if len(found) >= limit:
                break
            found.append(
                {
                    "id": batch.id,
                    "model": key.model,
                    "version": key.version,
                    "entry": key.entry,
                    "lengths": list(key.lengths),
                    "started_at_s": round(self._epoch_s + batch.dispatched_s, 6),
                    "requests": n_requests,
                    "rows": batch.n_rows,
                    "bucket": batch.bucket,
                    "padding": batch.n_padding,
                    "longest_wait_ms": _ms(longest_s),
                    "shortest_wait_ms": _ms(shortest_s),
                    "predicted_ms": _ms(batch.predicted_s),
                    "took_ms": _ms(batch.finished_s - batch.dispatched_s),
                    "error": error,
                    "reason": str(batch.reason),
                    "held_ms": _ms(batch.held_s),
                    "why_then": _why_then(batch),
                    "why_this_size": _why_this_size(batch),
                }
            )
        return found


def _why_then(batch: Batch) -> str:
    why = _WHY_THEN.get(Reason(batch.reason), str(batch.reason))
    if not batch.held_s:
        return why
    return f"{why}; it had waited {_span(batch.held_s)} for callers who were just answered and ask again at once"


def _why_this_size(batch: Batch) -> str:
    costs = batch.group.costs
    waiting = batch.n_waiting
    waited = f"{waiting} row{'' if waiting == 1 else 's'} waited"
    takes = f"bucket {batch.bucket} takes {_span(batch.predicted_s)}"
    chosen = takes if batch.n_rows == 1 else f"{takes}, {_span(batch.predicted_s / batch.n_rows)} a row"
    rivals = [
        f"bucket {bucket}: {_span(costs.cost(bucket) / min(bucket, waiting))} a row"
        for bucket in costs.buckets
        if bucket != batch.bucket and bucket in _neighbours(costs.buckets, batch.bucket)
    ]
    beside = f" ({'; '.join(rivals)})" if rivals else ""
    if batch.reason != Reason.OLDEST:
        return f"{waited}; {chosen}{beside}"
    return f"{waited} at {batch.load:.0%} load, and this makes all callers wait least: {chosen}{beside}"


def _neighbours(buckets: tuple[int, ...], bucket: int) -> tuple[int, ...]:
    place = buckets.index(bucket)
    return buckets[max(0, place - 1) : place + 2]


def _span(seconds: float) -> str:
    """Return a time in the unit in which it is a number that people read."""
    number, unit = (seconds * 1e6, "µs") if seconds < 0.9995e-3 else (seconds * 1e3, "ms")
    return f"{number:.3g} {unit}" if number < 999.5 else f"{number:,.0f} {unit}"


def _ms(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(seconds * 1e3, 4)
