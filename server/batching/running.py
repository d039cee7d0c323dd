"""The batches that were started and have not finished, and the deadlines of whose rows they hold."""

from __future__ import annotations

import math

from server.batching.items import Batch, Item

__all__ = ["Running"]


class Running:
    """Batches by id. A deadline may pass while its batch runs: the item is answered then, and its rows run for nobody.

    Nothing is taken out of a batch that runs: its other rows are not to notice.
    """

    __slots__ = ("_batches", "due_s", "until_s")

    def __init__(self) -> None:
        self._batches: dict[int, Batch] = {}
        #: At most the nearest deadline of an item that runs and is not done; infinity if none has one.
        self.due_s = math.inf
        #: When the last batch should be over, by the costs; in the past if none runs.
        self.until_s = -math.inf

    def __len__(self) -> int:
        return len(self._batches)

    def __contains__(self, batch: Batch) -> bool:
        return batch.id in self._batches

    @property
    def n_rows(self) -> int:
        """Rows of callers in them."""
        return sum(batch.n_rows for batch in self._batches.values())

    @property
    def first_until_s(self) -> float:
        """When the first of them should be over, by the costs; in the past if none runs."""
        return min((batch.dispatched_s + batch.predicted_s for batch in self._batches.values()), default=-math.inf)

    def add(self, batch: Batch) -> None:
        """Note a batch that is about to start."""
        self._batches[batch.id] = batch
        if batch.due_s < self.due_s:
            self.due_s = batch.due_s
        until_s = batch.dispatched_s + batch.predicted_s
        if until_s > self.until_s:
            self.until_s = until_s

    def remove(self, batch: Batch) -> None:
        """Note that a batch has ended. Errors: KeyError if it does not run."""
        del self._batches[batch.id]
        if not self._batches:
            self.due_s, self.until_s = math.inf, -math.inf
        elif batch.due_s <= self.due_s:
            self.due_s = min(other.due_s for other in self._batches.values())

    def late_items(self, now_s: float) -> list[Item]:
        """Return the items whose deadline has passed while they run, and look at the others next time."""
        late = []
        for batch in self._batches.values():
            if batch.due_s <= now_s:
                open_items = [item for item, _, _ in batch.spans if not item.is_done]
                late += [item for item in open_items if item.due_s <= now_s]
                batch.due_s = min((item.due_s for item in open_items if item.due_s > now_s), default=math.inf)
        self.due_s = min((batch.due_s for batch in self._batches.values()), default=math.inf)
        return late
