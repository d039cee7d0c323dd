"""Where rows wait that should not share batches with others': what a search left open, and callers who send poison.

Theory of operation. One bad row makes its batch fail, and the search for it costs further runs (``isolate``). By chance
that happens now and then; a caller who does it on purpose, or by a bug, multiplies the work of everybody's batches. So
a caller of whose rows many were bad is *held*: for a while its rows go to a second queue of the same graphs, where
batches are formed of such rows alone. There it is answered as before, and what its bad rows cost falls on itself: that
queue has an execution-time share of its own.

Only batches that failed are looked at, so that a model that never refuses a value, or a caller who sends good rows,
costs nothing to watch. A caller is held when more than ``_MOST_BAD`` of its rows were bad lately, and at least one in
``_ROWS_FOR_ONE_BAD`` of those of its rows that were in failed batches. One bad row among so many costs about one
further run for each of the caller's rows, which is what running them singly would. A proxy that many callers share
therefore stays with the others when one of them sends poison: most of its rows are good.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.batching.queue import Group

__all__ = ["Quarantine"]

#: Bad rows, lately, after which a caller may be held: so many are an accident.
_MOST_BAD = 3
#: Of a caller's rows in failed batches, one in so many must be bad. 2 * log2 of ordinary largest buckets.
_ROWS_FOR_ONE_BAD = 8
#: Seconds in which what a caller did is half forgotten.
_HALF_LIFE_S = 10.0
#: Seconds for which a caller is held after its last bad row.
_HELD_S = 10.0
#: Callers that are remembered of a group. Past it the one whose bad row is longest ago is forgotten.
_MAX_CALLERS = 1_024


class _Record:
    """What one caller sent in batches that failed."""

    __slots__ = ("at_s", "held_until_s", "n_bad", "n_rows")

    def __init__(self) -> None:
        self.n_bad = 0.0
        self.n_rows = 0.0
        self.at_s = -math.inf
        self.held_until_s = -math.inf


class Quarantine:
    """The second queue of a group, ``group``, and the callers whose rows go there."""

    __slots__ = ("_records", "group")

    def __init__(self, group: Group) -> None:
        #: Same graphs, costs and quota as the group that it belongs to.
        self.group = group
        #: By caller, the one whose bad row is longest ago first.
        self._records: dict[Hashable, _Record] = {}

    def failed(self, rows: Iterable[tuple[Hashable | None, bool]], now_s: float) -> None:
        """Note whose rows were in a batch that failed, each with whether it was bad. None is nobody in particular."""
        counts: dict[Hashable, list[int]] = {}
        for caller, is_bad in rows:
            if caller is not None:
                count = counts.setdefault(caller, [0, 0])
                count[0] += is_bad
                count[1] += 1
        for caller, (n_bad, n_rows) in counts.items():
            record = self._records.pop(caller, None) if n_bad else self._records.get(caller)
            if record is None:
                if not n_bad:
                    continue
                record = _Record()
            if n_bad:
                self._records[caller] = record
            kept = 0.5 ** ((now_s - record.at_s) / _HALF_LIFE_S)
            record.n_bad = record.n_bad * kept + n_bad
            record.n_rows = record.n_rows * kept + n_rows
            record.at_s = now_s
            if n_bad and record.n_bad > _MOST_BAD and record.n_bad * _ROWS_FOR_ONE_BAD >= record.n_rows:
                record.held_until_s = now_s + _HELD_S
        while len(self._records) > _MAX_CALLERS:
            del self._records[next(iter(self._records))]

    def holds(self, caller: Hashable | None, now_s: float) -> bool:
        """Return whether a caller's rows are to wait apart."""
        record = self._records.get(caller)
        return record is not None and now_s < record.held_until_s
