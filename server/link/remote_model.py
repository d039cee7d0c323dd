"""A model that serves in the engine process, as a worker holds it: it is asked like one that is here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from server.errors import RowwiseError
from server.link.columns import ColumnCodec
from server.link.messages import BatchFacts
from server.protocol import Rows

if TYPE_CHECKING:
    from server.derivatives import ServedDerivative
    from server.link.messages import Entry, Served
    from server.protocol import Column

__all__ = ["NO_BATCH", "Link", "RemoteAnswer", "RemoteModel", "RemoteTicket"]

NO_BATCH = BatchFacts(0, 0, 0, 0.0, "")


@dataclass(slots=True, eq=False)
class RemoteAnswer:
    """How a request ended in the engine process."""

    error: RowwiseError | None
    outputs: list[Column] = field(default_factory=list)
    batch: BatchFacts = NO_BATCH
    queue_s: float = 0.0

    @property
    def batch_id(self) -> int:
        """The batch's number; 0 if no row was executed."""
        return self.batch.id

    @property
    def bucket(self) -> int:
        """Rows of the batch's graph."""
        return self.batch.bucket

    @property
    def batch_rows(self) -> int:
        """Rows of the batch that belonged to callers."""
        return self.batch.n_rows

    @property
    def compute_s(self) -> float:
        """Execution time of the batch, seconds."""
        return self.batch.compute_s

    @property
    def reason(self) -> str:
        """Why the batch was dispatched as it was."""
        return self.batch.reason


class Taker(Protocol):
    """Takes the answers of requests that were admitted together."""

    def ran(self, tag: object, outputs: Sequence[Column], start: int, stop: int, queue_s: float) -> None:
        """Take a request's rows of outputs that it has in common with others."""

    def ended(self, tag: object, answer: RemoteAnswer) -> None:
        """Take the error with which the request with that tag ended."""


class Link(Protocol):
    """What a remote model needs of the worker's end."""

    def ask(
        self,
        model: RemoteModel,
        rows: Rows,
        *,
        deadline_s: float,
        caller: str | None,
        priority: int | None,
        on_done: Callable[[RemoteAnswer], None],
    ) -> RemoteTicket:
        """Send rows at the end of the tick. Errors: EngineGone."""

    def ask_many(
        self,
        model: RemoteModel,
        rows: Rows,
        counts: Sequence[int],
        *,
        deadline_s: float,
        tags: Sequence[object],
        callers: Sequence[str | None],
        taker: Taker,
    ) -> list[RemoteTicket]:
        """Send the rows of several requests, end to end, at the end of the tick. Errors: EngineGone."""

    def cancel(self, ticket: RemoteTicket) -> bool:
        """Take a request back; False if it was answered."""


class RemoteTicket:
    """A request on its way to the engine and back. Written by the worker's end."""

    __slots__ = (
        "_link",
        "caller",
        "deadline_s",
        "id",
        "is_done",
        "model",
        "n_rows",
        "on_done",
        "priority",
        "tag",
        "taker",
    )

    def __init__(
        self,
        link: Link,
        request_id: int,
        model: RemoteModel,
        n_rows: int,
        *,
        deadline_s: float,
        caller: str | None,
        priority: int | None,
        on_done: Callable[[RemoteAnswer], None] | None,
        taker: Taker | None = None,
        tag: object = None,
    ) -> None:
        self._link = link
        self.id = request_id
        self.model = model
        self.n_rows = n_rows
        #: Takes its rows or its error, by its tag, if it was asked for together with others; else ``on_done`` does.
        self.taker = taker
        self.tag = tag
        self.deadline_s = deadline_s
        self.caller = caller
        self.priority = priority
        self.on_done = on_done
        #: True once it was answered.
        self.is_done = False

    def cancel(self) -> bool:
        """Take it back, as far as it isn't executed."""
        return self._link.cancel(self)

    def end(self) -> None:
        """Note that it is answered, and let go of who was: they hold it, and a collection would have to find them."""
        self.is_done = True
        self.taker = self.tag = self.on_done = None


class RemoteModel:
    """One entry point of a version that serves. ``derivatives`` are the version's others, on its prediction alone."""

    __slots__ = (
        "_default_timeout_s",
        "_link",
        "derivatives",
        "entry",
        "inputs",
        "name",
        "number",
        "outputs",
        "signature",
        "version",
    )

    def __init__(self, link: Link, served: Served, entry: Entry) -> None:
        self._link = link
        self._default_timeout_s = served.default_timeout_s
        self.derivatives: Sequence[ServedDerivative] = ()
        self.entry = entry.entry
        self.name = served.model
        self.number = entry.number
        self.signature = entry.signature
        self.version = served.version
        self.inputs = [ColumnCodec(tensor) for tensor in entry.signature.inputs]
        self.outputs = [ColumnCodec(tensor) for tensor in entry.signature.outputs]

    def predict(
        self,
        rows: Rows,
        *,
        timeout_s: float | None,
        on_done: Callable[[RemoteAnswer], None],
        spent_s: float = 0.0,
        caller: str | None = None,
        priority: int | None = None,
    ) -> RemoteTicket:
        """Send a request's rows to the engine; ``on_done`` is called once, on the event loop's thread.

        ``timeout_s`` None takes the model's default, of which ``spent_s`` are over; the time on the way counts.
        Errors: EngineGone.
        """
        patience_s = self._default_timeout_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() - spent_s + patience_s
        return self._link.ask(self, rows, deadline_s=deadline_s, caller=caller, priority=priority, on_done=on_done)

    def refuses_all(self, *, timeout_s: float | None, spent_s: float) -> RowwiseError | None:
        """Return None: only the engine knows how much waits, and answers who is refused."""

    @property
    def returning(self) -> None:
        """Return None: the engine does not see who is back."""
        return None

    def awaits(self, n_rows: int) -> bool:  # noqa: ARG002 - as every model
        """Return False: it is the engine that waits."""
        return False

    @property
    def free_in_s(self) -> float:
        """0: it is the engine that knows."""
        return 0.0

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
    ) -> list[RemoteTicket | None]:
        """Send several requests whose rows lie in one array for each input; ``taker`` is told of each once."""
        patience_s = self._default_timeout_s if timeout_s is None else timeout_s
        deadline_s = time.monotonic() - spent_s + patience_s
        if sum(counts) != rows.n:
            rows = _only(rows, counts, places)
        try:
            return [
                *self._link.ask_many(self, rows, counts, deadline_s=deadline_s, tags=tags, callers=callers, taker=taker)
            ]
        except RowwiseError as error:
            for tag in tags:
                taker.ended(tag, RemoteAnswer(error))
            return [None] * len(counts)

    def take_back(self, handle: object) -> None:
        """Take a request of ``predict_many`` back, as far as it isn't executed."""
        if isinstance(handle, RemoteTicket):
            handle.cancel()


def _only(rows: Rows, counts: Sequence[int], places: Sequence[int]) -> Rows:
    """Return the rows that belong to somebody: those of callers who have left are not sent."""
    kept = [row for count, place in zip(counts, places, strict=True) for row in range(place, place + count)]
    return Rows(
        len(kept),
        tuple([column[row] for row in kept] if isinstance(column, list) else column[kept] for column in rows.columns),
        None if rows.lengths is None else [rows.lengths[row] for row in kept],
    )
