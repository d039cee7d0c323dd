"""What happened in a second, from two readings of counters that only grow, as each viewer may see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from server.metrics import EntryKey, Totals
from server.rights import Grant

__all__ = ["Reading", "Snapshot", "view_of"]

#: Codes by what they mean to whoever looks: below it answered, from it refused, from the next failed.
_REFUSED, _FAILED = 400, 500
#: The label of requests that reached no model.
_NOBODY = ""
_QUANTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p99_ms": 99.0}


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters at one time, in seconds of a monotonic clock; ``requests`` by model, version, entry and code."""

    at_s: float
    totals: Mapping[EntryKey, Totals]
    requests: Mapping[tuple[str, ...], int]


class Snapshot:
    """The time between two readings. ``waiting``: rows that wait at its end; ``latencies_s``: some of its requests'.

    Text is made once for all who may see the same.
    """

    def __init__(
        self,
        before: Reading,
        after: Reading,
        *,
        waiting: Mapping[EntryKey, int],
        latencies_s: Mapping[EntryKey, Sequence[float]],
    ) -> None:
        self._over_s = max(after.at_s - before.at_s, 1e-9)
        self._at_s = after.at_s
        self._counts = _differences(before, after, waiting)
        self._latencies: dict[EntryKey, Any] = {key: np.asarray(found) for key, found in latencies_s.items() if found}
        self._texts: dict[Grant | None, bytes] = {}

    def text(self, grant: Grant) -> bytes:
        """Return JSON of the entry points that a grant covers, those where anything happened, and their sum."""
        view = view_of(grant)
        found = self._texts.get(view)
        if found is None:
            found = self._texts[view] = orjson.dumps(self._for(view))
        return found

    def known_text(self, grant: Grant) -> bytes | None:
        """Return what was made for such a grant while it was new; None: nobody saw it then."""
        return self._texts.get(view_of(grant))

    def settle(self) -> None:
        """Keep the texts alone."""
        self._counts = {}
        self._latencies = {}

    def _for(self, grant: Grant | None) -> dict[str, Any]:
        covered = {
            key: counts
            for key, counts in self._counts.items()
            if grant is None or (key[0] != _NOBODY and grant.covers(key[0]))
        }
        entries = [
            {"model": key[0], "version": key[1], "entry": key[2], **self._told(counts, [key])}
            for key, counts in sorted(covered.items())
            if key[0] != _NOBODY
        ]
        total = _Counts()
        for counts in covered.values():
            total.add(counts)
        return {
            "at_s": round(self._at_s, 3),
            "over_s": round(self._over_s, 3),
            "total": self._told(total, list(covered)),
            "entries": entries,
        }

    def _told(self, counts: _Counts, keys: Sequence[EntryKey]) -> dict[str, Any]:
        over_s = self._over_s
        n_executed = counts.rows + counts.padding_rows
        told = {
            "answered_per_s": _rate(counts.answered, over_s),
            "refused_per_s": _rate(counts.refused, over_s),
            "failed_per_s": _rate(counts.failed, over_s),
            "rows_per_s": _rate(counts.rows, over_s),
            "batches_per_s": _rate(counts.batches, over_s),
            "rows_per_batch": round(counts.rows / counts.batches, 2) if counts.batches else None,
            "padding_share": round(counts.padding_rows / n_executed, 4) if n_executed else None,
            "busy_engines": round(counts.compute_s / over_s, 4),
            "waiting_rows": counts.waiting_rows,
        }
        samples = [self._latencies[key] for key in keys if key in self._latencies]
        if not samples:
            return {**told, **dict.fromkeys(_QUANTILES)}
        found = np.percentile(np.concatenate(samples), list(_QUANTILES.values())) * 1e3
        return {**told, **{name: round(float(value), 3) for name, value in zip(_QUANTILES, found, strict=True)}}


@dataclass(slots=True)
class _Counts:
    """What was counted of one entry point, or of several."""

    answered: int = 0
    refused: int = 0
    failed: int = 0
    rows: int = 0
    batches: int = 0
    padding_rows: int = 0
    compute_s: float = 0.0
    waiting_rows: int = 0

    def add(self, other: _Counts) -> None:
        """Add another's."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def view_of(grant: Grant) -> Grant | None:
    """Return what tells one view from another: None for all who may see every model."""
    return None if grant.is_unrestricted else grant


def _differences(before: Reading, after: Reading, waiting: Mapping[EntryKey, int]) -> dict[EntryKey, _Counts]:
    found: dict[EntryKey, _Counts] = {}
    for key, now in after.totals.items():
        then = before.totals.get(key)
        # Of a version that was deleted and made again, all is new.
        if then is None or then.batches > now.batches:
            then = Totals()
        if now.batches != then.batches:
            found[key] = _Counts(
                rows=now.rows - then.rows,
                batches=now.batches - then.batches,
                padding_rows=now.padding_rows - then.padding_rows,
                compute_s=now.compute_s - then.compute_s,
            )
    for labels, n in after.requests.items():
        n_new = n - before.requests.get(labels, 0)
        if n_new <= 0:
            continue
        model, version, entry, code, *_ = labels
        counts = found.setdefault((model, int(version or 0), entry), _Counts())
        if int(code) < _REFUSED:
            counts.answered += n_new
        elif int(code) < _FAILED:
            counts.refused += n_new
        else:
            counts.failed += n_new
    for key, n_rows in waiting.items():
        if n_rows:
            found.setdefault(key, _Counts()).waiting_rows = n_rows
    return found


def _rate(n: int, over_s: float) -> float:
    return round(n / over_s, 1)
