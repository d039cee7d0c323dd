"""Who of a batch that has run gets what: a result, an error of its own, or another turn."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from functools import partial

from server.batching.admission import late
from server.batching.backlog import Backlog
from server.batching.errors import ExampleFailed, ExecutionFailed
from server.batching.interfaces import Observer
from server.batching.isolate import RowErrors
from server.batching.items import Batch, Item, Part, Span
from server.batching.quarantine import Quarantine
from server.batching.queue import Group
from server.errors import RowwiseError

__all__ = ["Delivery", "again", "failures", "rows_by_caller", "settled", "unsettled"]

_log = logging.getLogger(__name__)


class Delivery:
    """Ends items: with their result, or without it. ``enqueue`` lets an item's rows wait."""

    def __init__(self, backlog: Backlog, observer: Observer, *, enqueue: Callable[[Item], None]) -> None:
        self._backlog = backlog
        self._observer = observer
        self._enqueue = enqueue

    def deliver(self, batch: Batch, outputs: object, error: RowErrors | None) -> None:
        """Give each item its rows of ``outputs``, and answer those that are now complete."""
        if error is not None:
            self._deliver_some(batch, outputs, error)
            return
        offset = 0
        for item, start, stop in batch.spans:
            if not item.is_done:
                item.parts.append(Part(batch, outputs, offset, start, stop))
                item.n_unfinished -= stop - start
                if not item.n_unfinished:
                    if len(item.parts) > 1:
                        item.parts.sort(key=_first_row)
                    self.answer(item)
            offset += stop - start

    def _deliver_some(self, batch: Batch, outputs: object, error: RowErrors) -> None:
        # First what waits again: a caller who is answered may cancel the request of another, and that one waits.
        self._isolated(batch, error)
        for item, start, stop, offset in settled(batch, error):
            if not item.is_done:
                item.parts.append(Part(batch, outputs, offset, start, stop))
                self._progressed(item, stop - start)

    def _progressed(self, item: Item, n_rows: int) -> None:
        """Note that rows of an item have their result, and answer it if it is complete."""
        item.n_unfinished -= n_rows
        if not item.n_unfinished:
            if len(item.parts) > 1:
                item.parts.sort(key=_first_row)
            self.answer(item)

    def _isolated(self, batch: Batch, error: RowErrors) -> None:
        """Remember who sent the bad rows of a batch, and let those that are not settled wait apart."""
        group = batch.group if batch.group.home is None else batch.group.home
        now_s = batch.finished_s
        if group.quarantine is None:
            apart = Group(group.key, group.costs, label=group.label, quota=group.quota, home=group)
            apart.is_closed = group.is_closed
            group.quarantine = Quarantine(apart)
        group.quarantine.failed(rows_by_caller(batch, error), now_s)
        for item, start, stop in unsettled(batch, error):
            if not item.is_done:
                rerun = again(item, start, stop, group.quarantine.group, now_s, partial(self._rerun_done, item))
                item.reruns += (rerun,)
                self._enqueue(rerun)

    def _rerun_done(self, item: Item, rerun: Item) -> None:
        """Take over what has become of rows that ran again."""
        item.reruns = tuple(other for other in item.reruns if other is not rerun)
        if item.is_done:
            return
        if rerun.error is None:
            item.parts += rerun.parts
            self._progressed(item, sum(part.stop - part.start for part in rerun.parts))
        elif self.end(item, rerun.error):
            self.answer(item)

    def end(self, item: Item, error: RowwiseError) -> bool:
        """End an item without its result, wherever its rows are. False: it is done already."""
        if item.is_done:
            return False
        self.drop(item, error)
        return True

    def end_late(self, batch: Batch, now_s: float) -> list[Item]:
        """End the items of a batch whose deadline passed before it did, and return them."""
        return [item for item, _, _ in batch.spans if item.due_s <= now_s and self.end(item, late(item))]

    def drop(self, item: Item, error: RowwiseError) -> Item:
        """End an item without its result. The caller answers it once the state is true again."""
        was_waiting = self._backlog.remove(item)
        for rerun in item.reruns:
            if not rerun.is_done:
                self.drop(rerun, error)
                rerun.on_done = _answered
        item.reruns = ()
        item.error = error
        item.is_done = True
        if was_waiting:
            self._observer.dropped(item)
        return item

    def answer(self, item: Item) -> None:
        item.is_done = True
        on_done, item.on_done = item.on_done, _answered
        try:
            on_done(item)
        except Exception:  # noqa: BLE001 - one caller's fault must not reach its batch-mates
            _log.exception("on_done of an item of %s failed", item.group.label)


def failures(batch: Batch, cause: BaseException) -> list[tuple[Item, RowwiseError]]:
    """Return the items that a failed batch leaves without their result, each with an error of its own.

    An error that is the server's own already says what to do, and stays as it is.
    """
    if isinstance(cause, RowErrors):
        return _refused(batch, cause)
    if isinstance(cause, RowwiseError):
        return [(item, cause) for item, _, _ in batch.spans]
    sentence = f"{batch.group.label}: execution failed: {_describe(cause)}"
    return [(item, ExecutionFailed(sentence, cause=cause)) for item, _, _ in batch.spans]


def _refused(batch: Batch, cause: RowErrors) -> list[tuple[Item, RowwiseError]]:
    found: list[tuple[Item, RowwiseError]] = []
    first = 0
    for item, start, stop in batch.spans:
        bad = {
            row - first + start: cause.errors[row].sentence
            for row in range(first, first + stop - start)
            if row in cause.errors
        }
        if bad:
            found.append((item, ExampleFailed.of_rows(batch.group.label, bad)))
        first += stop - start
    return found


def rows_by_caller(batch: Batch, cause: RowErrors) -> Iterator[tuple[Hashable | None, bool]]:
    """Yield, for each row that is settled, whose it is and whether it is bad."""
    row = 0
    for item, start, stop in batch.spans:
        for _ in range(stop - start):
            if row not in cause.unsettled:
                yield item.caller, row in cause.errors
            row += 1


def settled(batch: Batch, cause: RowErrors) -> Iterator[tuple[Item, int, int, int]]:
    """Yield item, start, stop and the batch's row of what has run: the spans, less what is to be run again."""
    offset = 0
    for item, start, stop in batch.spans:
        for piece_start, piece_stop in _pieces(offset, stop - start, cause.unsettled, wanted=False):
            yield item, start + piece_start - offset, start + piece_stop - offset, piece_start
        offset += stop - start


def unsettled(batch: Batch, cause: RowErrors) -> Iterator[Span]:
    """Yield the parts of spans that are to be run again."""
    offset = 0
    for item, start, stop in batch.spans:
        for piece_start, piece_stop in _pieces(offset, stop - start, cause.unsettled, wanted=True):
            yield item, start + piece_start - offset, start + piece_stop - offset
        offset += stop - start


def again(item: Item, start: int, stop: int, group: Group, now_s: float, on_done: Callable[[Item], None]) -> Item:
    """Return an item that stands for some rows of another, which are to run in ``group``.

    Its rows have the numbers that they have in the other: it begins at row ``start``, as if those before had run.
    """
    rerun = Item(
        group,
        stop,
        item.payload,
        arrived_s=now_s,
        deadline_s=item.deadline_s,
        on_done=on_done,
        caller=item.caller,
        row_bytes=item.row_bytes,
        priority=item.priority,
        first=item.first,
    )
    rerun.next_row = start
    rerun.n_unfinished = stop - start
    return rerun


def _pieces(first: int, n_rows: int, members: frozenset[int], *, wanted: bool) -> Iterator[tuple[int, int]]:
    """Yield the runs of consecutive rows that are members, or are not."""
    begun = None
    for row in range(first, first + n_rows):
        if (row in members) is wanted:
            begun = row if begun is None else begun
        elif begun is not None:
            yield begun, row
            begun = None
    if begun is not None:
        yield begun, first + n_rows


def _describe(cause: BaseException) -> str:
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__


def _answered(item: Item) -> None:
    """Stands in ``on_done`` of a done item: frees what it referred to, and catches a second answer."""
    raise AssertionError(f"an item of {item.group.label} was answered twice")


def _first_row(part: Part) -> int:
    return part.start
