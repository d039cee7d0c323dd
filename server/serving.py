"""A model that serves: from a request's rows to items of the core, and from their parts back to answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from server.artifact import PREDICT
from server.batching import PRIORITY, Batcher, ExampleFailed, Group, Item, Part
from server.errors import RowwiseError
from server.protocol import Column, Rows
from server.serving_answer import Answer
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


class Ticket:
    """A request under way: one item for each group that its rows fall into.

    ``places`` says which rows of the request each item holds; None if one item holds them all.
    """

    __slots__ = ("_batcher", "_items", "_model", "_n_open", "_on_done", "_places")

    def __init__(self, model: ServedModel, batcher: Batcher, on_done: Callable[[Answer], None]) -> None:
        self._model = model
        self._batcher = batcher
        self._on_done = on_done
        self._places: list[list[int]] | None = None
        self._items: Sequence[Item] = ()
        #: Items that are not done. ``on_done`` is called when it gets to 0.
        self._n_open = 0

    def submit(self, items: Sequence[Item], places: list[list[int]] | None) -> None:
        """Queue all items or none. Errors: what ``Batcher.submit`` raises; ``on_done`` is then not called."""
        self._items = items
        self._places = places
        self._n_open = len(items)
        submit = self._batcher.submit
        for number, item in enumerate(items):
            try:
                submit(item)
            except RowwiseError:
                # Nothing of it has run: batches are formed at the end of the tick.
                self._on_done = _nobody
                for queued in items[:number]:
                    self._batcher.cancel(queued)
                self._model.statistics.failed(0.0)
                raise

    def cancel(self) -> bool:
        """Take back what no batch has taken. True if anything was: then ``on_done`` is called with Cancelled."""
        taken_back = False
        for item in self._items:
            taken_back |= self._batcher.cancel(item)
        return taken_back

    def item_done(self, _item: Item) -> None:
        """Note that an item has ended, however it did: the core's ``on_done``."""
        self._n_open -= 1
        if not self._n_open:
            self._on_done(self._model.answer(self._items, self._places))


class ServedModel:
    """The handle that the protocols hold: one entry point of a loaded version, and its groups."""

    __slots__ = (
        "_axes",
        "_batcher",
        "_clock",
        "_groups",
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
            padded = tuple(axis.bucket_for(true) for axis, true in zip(self._axes, lengths, strict=True))
            members.setdefault(padded, []).append(index)
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
    ) -> list[Item]:
        """Queue several requests whose rows lie in one array; ``taker`` is told of each once, by its tag.

        Shapes: ``rows.columns`` hold all rows; request ``k`` has ``counts[k]`` of them from ``places[k]`` on. No length
        axes. ``timeout_s`` None takes the model's own, for each; ``spent_s`` of it are over.
        """
        group = self._only_group
        assert group is not None, "requests of differing lengths are admitted one by one"
        now_s = self._clock()
        deadline_s = now_s - spent_s + (self.default_timeout_s if timeout_s is None else timeout_s)
        row_bytes = rows.n_bytes // rows.n if self._row_bytes is None else self._row_bytes

        def done(item: Item) -> None:
            parts = item.parts
            if item.error is None and len(parts) == 1:
                part = parts[0]
                offset = part.offset
                queue_s = part.batch.dispatched_s - now_s
                self.statistics.succeeded(took_s=part.batch.finished_s - now_s, queue_s=queue_s)
                taker.ran(item.tag, part.outputs, offset, offset + part.stop - part.start, queue_s)  # type: ignore[arg-type]
            else:
                taker.ended(item.tag, self.answer((item,), None))

        items = [
            Item(
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
            for count, place, tag, caller in zip(counts, places, tags, callers, strict=True)
        ]
        for item, error in self._batcher.submit_all(items):
            self.statistics.failed(0.0)
            taker.ended(item.tag, Answer(error=error, outputs=[], batch=None, queue_s=0.0))
        return items

    def take_back(self, handle: object) -> None:
        """Take a request of ``predict_many`` back, as far as it does not run."""
        self._batcher.cancel(handle)  # type: ignore[arg-type]

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
        if error is None and len(items) == 1 and len(parts) == 1 and self._only_group is not None:
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


def _nobody(answer: Answer) -> None:
    """Takes the end of items of a request that was refused: its caller has the refusal already."""
