"""A model that serves: from a request's rows to items of the core, and from their parts back to answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from server.artifact import PREDICT
from server.batching import PRIORITY, Batcher, CostTable, ExampleFailed, Group, Item, Part, Returning
from server.errors import RowwiseError
from server.protocol import Column, Rows
from server.serving_answer import Answer
from server.serving_ticket import Ticket
from server.signature import STRING, LengthAxis, ModelSignature, TensorSignature
from server.statistics import EntryStatistics

if TYPE_CHECKING:
    from server.derivatives import ServedDerivative

__all__ = ["Answer", "ServedModel", "Taker", "Ticket"]


#: Bytes that a number is taken for: what the widest dtype has.
_WIDEST_BYTES = 8


class Taker(Protocol):
    """Takes the answers of requests that were admitted together."""

    def ran(self, tag: object, outputs: Sequence[Column], start: int, stop: int, queue_s: float) -> None:
        """Take a request's rows of a batch's outputs."""

    def ended(self, tag: object, answer: Answer) -> None:
        """Take an answer that is no such piece: an error, or one that was put together."""


class ServedModel:
    """The handle that the protocols hold: one entry point of a loaded version, and its groups."""

    __slots__ = (
        "_axes",
        "_batcher",
        "_clock",
        "_groups",
        "_has_fixed_outputs",
        "_only_group",
        "_row_bytes",
        "default_timeout_s",
        "derivatives",
        "entry",
        "name",
        "signature",
        "statistics",
        "version",
    )

    def __init__(
        self,
        name: str,
        version: int,
        signature: ModelSignature,
        groups: Mapping[tuple[int, ...], Group],
        *,
        batcher: Batcher,
        clock: Callable[[], float],
        default_timeout_s: float,
        entry: str = PREDICT,
        statistics: EntryStatistics | None = None,
    ) -> None:
        #: How its requests ended; batches are counted by who watches the batcher.
        self.statistics = EntryStatistics() if statistics is None else statistics
        #: The derivatives of the same version, each answered by a handle of its own.
        self.derivatives: Sequence[ServedDerivative] = ()
        self.entry = entry
        self.name = name
        self.version = version
        self.signature = signature
        self._axes: Sequence[LengthAxis] = signature.axes
        self._groups = groups
        self._only_group = None if signature.axes else groups[()]
        self._batcher = batcher
        self._clock = clock
        self.default_timeout_s = default_timeout_s
        #: Bytes of a decoded row where they are the same for every row, so that nobody has to count.
        self._row_bytes = _row_bytes(signature)
        #: True: a request's rows of a batch are its answer as they are.
        self._has_fixed_outputs = not signature.axes or all(tensor.is_fixed for tensor in signature.outputs)

    @property
    def cost_tables(self) -> dict[tuple[int, ...], CostTable]:
        """What is planned with, by padded lengths."""
        return {lengths: group.costs for lengths, group in self._groups.items()}

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The sizes of its batches, ascending: those of the length that has most."""
        return max((group.costs.buckets for group in self._groups.values()), key=len)

    def predict(
        self,
        rows: Rows,
        *,
        timeout_s: float | None,
        on_done: Callable[[Answer], None],
        spent_s: float = 0.0,
        caller: str | None = None,
        priority: int | None = None,
    ) -> Ticket:
        """Queue a request's rows; ``on_done`` is called once, on the event loop's thread.

        ``timeout_s`` None takes the model's default; ``spent_s`` of it are over. ``caller`` tells whose bad rows are
        whose; the lower ``priority`` goes first, None is the ordinary one. Errors, at once and instead of ``on_done``:
        what ``Batcher.submit`` raises; nothing of the request is queued then.
        """
        now_s = self._clock()
        deadline_s = now_s - spent_s + (self.default_timeout_s if timeout_s is None else timeout_s)
        ticket = Ticket(self, self._batcher, on_done)
        make = partial(
            self._item,
            now_s=now_s,
            deadline_s=deadline_s,
            on_done=ticket.item_done,
            caller=caller,
            priority=PRIORITY if priority is None else priority,
        )
        if self._only_group is not None:
            ticket.submit([make(self._only_group, rows)], None)
            return ticket
        assert rows.lengths is not None
        members: dict[tuple[int, ...], list[int]] = {}
        for index, lengths in enumerate(rows.lengths):
            members.setdefault(self._padded(lengths), []).append(index)
        if len(members) == 1:
            ticket.submit([make(self._groups[next(iter(members))], rows)], None)
        else:
            items = [make(self._groups[padded], _select(rows, indexes)) for padded, indexes in members.items()]
            ticket.submit(items, list(members.values()))
        return ticket

    def refuses_all(self, *, timeout_s: float | None, spent_s: float) -> RowwiseError | None:
        """Return why no request of one row would be admitted now, None if one would."""
        group = self._only_group
        if group is None or group.quarantine is not None or not self._batcher.n_waiting:
            return None
        now_s = self._clock()
        deadline_s = now_s - spent_s + (self.default_timeout_s if timeout_s is None else timeout_s)
        row_bytes = self._row_bytes or 0
        return self._batcher.refusal(
            Item(group, 1, None, arrived_s=now_s, deadline_s=deadline_s, on_done=_not_admitted, row_bytes=row_bytes)
        )

    @property
    def returning(self) -> Returning:
        """Who was answered and is about to ask again."""
        return next(iter(self._groups.values())).returning

    def awaits(self, n_rows: int) -> bool:
        """Return whether so many rows, were they here, would wait for callers who are about to ask again."""
        group = self._only_group
        return group is not None and self._batcher.awaits(group, n_rows)

    @property
    def free_in_s(self) -> float:
        """Seconds until a batch can begin, as far as that is known; 0: at once."""
        return self._batcher.free_in_s

    def predict_many(
        self,
        rows: Rows,
        counts: Sequence[int],
        places: Sequence[int],
        *,
        tags: Sequence[object],
        callers: Sequence[str | None],
        timeout_s: float | None,
        spent_s: float,
        taker: Taker,
    ) -> list[Item | Ticket | None]:
        """Queue several requests whose rows lie end to end; ``taker`` is told of each once, by its tag.

        Shapes: ``rows`` holds all rows; request ``k`` has ``counts[k]`` of them from ``places[k]`` on. ``timeout_s``
            None takes the model's own, for each; ``spent_s`` of it are over.
        """
        now_s = self._clock()
        deadline_s = now_s - spent_s + (self.default_timeout_s if timeout_s is None else timeout_s)
        row_bytes = rows.n_bytes // rows.n if self._row_bytes is None else self._row_bytes
        is_whole = self._has_fixed_outputs

        def done(item: Item) -> None:
            parts = item.parts
            if item.error is None and len(parts) == 1 and is_whole:
                part = parts[0]
                offset = part.offset
                queue_s = part.batch.dispatched_s - now_s
                self.statistics.succeeded(took_s=part.batch.finished_s - now_s, queue_s=queue_s)
                taker.ran(item.tag, part.outputs, offset, offset + part.stop - part.start, queue_s)  # type: ignore[arg-type]
            else:
                taker.ended(item.tag, self.answer((item,), None))

        only = self._only_group
        admitted: list[Item | Ticket | None] = []
        by_group: dict[Group, list[Item]] = {}
        for count, place, tag, caller in zip(counts, places, tags, callers, strict=True):
            group = self._group_of(rows, place, count) if only is None else only
            if group is None:
                own, left_s = _select(rows, range(place, place + count)), deadline_s - now_s
                admitted.append(self._predict_apart(own, tag, timeout_s=left_s, caller=caller, taker=taker))
                continue
            item = Item(
                group,
                count,
                rows,
                arrived_s=now_s,
                deadline_s=deadline_s,
                on_done=done,
                caller=caller,
                row_bytes=row_bytes,
                first=place,
                tag=tag,
            )
            admitted.append(item)
            by_group.setdefault(group, []).append(item)
        for items in by_group.values():
            for item, error in self._batcher.submit_all(items):
                self.statistics.failed(0.0)
                taker.ended(item.tag, Answer(error=error, outputs=[], batch=None, queue_s=0.0))
        return admitted

    def _group_of(self, rows: Rows, place: int, count: int) -> Group | None:
        """Return the group that all rows of a request fall into; None if they fall into several."""
        assert rows.lengths is not None
        found = {self._padded(lengths) for lengths in rows.lengths[place : place + count]}
        return self._groups[found.pop()] if len(found) == 1 else None

    def _padded(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([axis.bucket_for(true) for axis, true in zip(self._axes, lengths, strict=True)])

    def _predict_apart(
        self, rows: Rows, tag: object, *, timeout_s: float, caller: str | None, taker: Taker
    ) -> Ticket | None:
        """Queue a request of ``predict_many`` whose rows can't share a batch."""
        try:
            return self.predict(rows, timeout_s=timeout_s, on_done=partial(taker.ended, tag), caller=caller)
        except RowwiseError as error:
            taker.ended(tag, Answer(error=error, outputs=[], batch=None, queue_s=0.0))
            return None

    def take_back(self, handle: object) -> None:
        """Take a request of ``predict_many`` back, as far as it does not run."""
        if isinstance(handle, Ticket):
            handle.cancel()
        elif isinstance(handle, Item):
            self._batcher.cancel(handle)

    def _item(
        self,
        group: Group,
        rows: Rows,
        *,
        now_s: float,
        deadline_s: float,
        on_done: Callable[[Item], None],
        caller: str | None,
        priority: int,
    ) -> Item:
        row_bytes = self._row_bytes
        return Item(
            group,
            rows.n,
            rows,
            arrived_s=now_s,
            deadline_s=deadline_s,
            on_done=on_done,
            caller=caller,
            priority=priority,
            row_bytes=rows.n_bytes // rows.n if row_bytes is None else row_bytes,
        )

    def answer(self, items: Sequence[Item], places: Sequence[Sequence[int]] | None) -> Answer:
        """Put the parts of a request's finished items together."""
        first = items[0]
        error = first.error
        if places is not None:
            number, error = next(
                ((number, item.error) for number, item in enumerate(items) if item.error is not None), (0, None)
            )
            if isinstance(error, ExampleFailed):
                error = error.placed(places[number])
        parts = first.parts
        if error is None and len(items) == 1 and len(parts) == 1 and self._has_fixed_outputs:
            part = parts[0]
            start, stop = part.offset, part.offset + part.stop - part.start
            outputs: list[Column] = [output[start:stop] for output in part.outputs]  # type: ignore[attr-defined]
            batch = part.batch
            queue_s = batch.dispatched_s - first.arrived_s
            self.statistics.succeeded(took_s=batch.finished_s - first.arrived_s, queue_s=queue_s)
            return Answer(error=None, outputs=outputs, batch=batch, queue_s=queue_s)
        ran = [part for item in items for part in item.parts]
        last = max((part.batch for part in ran), key=lambda batch: batch.finished_s, default=None)
        queue_s = max((part.batch.dispatched_s for part in ran), default=first.arrived_s) - first.arrived_s
        took_s = self._clock() - first.arrived_s
        if error is not None:
            self.statistics.failed(took_s)
            return Answer(error=error, outputs=[], batch=last, queue_s=queue_s)
        self.statistics.succeeded(took_s=took_s, queue_s=queue_s)
        outputs = [self._collect(index, tensor, items, places) for index, tensor in enumerate(self.signature.outputs)]
        return Answer(error=None, outputs=outputs, batch=last, queue_s=queue_s)

    def _collect(
        self, index: int, tensor: TensorSignature, items: Sequence[Item], places: Sequence[Sequence[int]] | None
    ) -> Column:
        """Gather one output's rows from all parts, in the order of the request."""
        n_rows = sum(item.n_rows for item in items)
        rows: list[np.ndarray[Any, Any]] = [None] * n_rows  # type: ignore[list-item]
        for number, item in enumerate(items):
            payload: Any = item.payload
            for part in item.parts:
                output = _output(part, index)
                for step in range(part.stop - part.start):
                    inside = part.start + step
                    row = _row(output, part.offset + step)
                    if not tensor.is_fixed and self._axes:
                        row = self._cut(row, tensor, payload.lengths[item.first + inside])
                    rows[inside if places is None else places[number][inside]] = row
        return np.stack(rows) if tensor.is_fixed else rows

    def _cut(
        self, row: np.ndarray[Any, Any], tensor: TensorSignature, lengths: tuple[int, ...]
    ) -> np.ndarray[Any, Any]:
        index = self.signature.axis_index
        return row[tuple(slice(lengths[index[dim]]) if dim in index else slice(None) for dim in tensor.shape)]


def _row_bytes(signature: ModelSignature) -> int | None:
    if not all(tensor.is_fixed and tensor.dtype != STRING for tensor in signature.inputs):
        return None
    return sum(math.prod(tensor.padded_shape({})) * _WIDEST_BYTES for tensor in signature.inputs)


def _output(part: Part, index: int) -> Column:
    outputs: Any = part.outputs
    column: Column = outputs[index]
    return column


def _row(output: Column, index: int) -> np.ndarray[Any, Any]:
    # With the ellipsis a scalar stays an array: a byte string's dtype would drop its trailing zeros.
    return output[index] if isinstance(output, list) else output[index, ...]


def _select(rows: Rows, indexes: Sequence[int]) -> Rows:
    assert rows.lengths is not None
    return Rows(
        n=len(indexes),
        columns=tuple(
            column[list(indexes)] if isinstance(column, np.ndarray) else [column[index] for index in indexes]
            for column in rows.columns
        ),
        lengths=[rows.lengths[index] for index in indexes],
    )


def _not_admitted(_item: Item) -> None:
    raise AssertionError("an item that was only asked about was answered")
