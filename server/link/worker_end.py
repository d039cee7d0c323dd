"""A worker's end of the link: sends rows, takes answers, and knows whether the engine is there.

Theory of operation. Each engine process is met anew: the worker tries to connect, again and again until somebody
listens, says hello, gets a table, and watches the process that sent it. When that process or the connection ends,
however it does, everything that waits for it fails at once, and the connection is thrown away with what was never sent:
a request that was given up must not reach the next engine. So a request is with one engine process or with none, and is
answered once.

A request that is far past its deadline without an answer is given up here: an engine that hangs is not gone.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from server.batching import Cancelled, DeadlineExceeded
from server.errors import RowwiseError
from server.link.connection import Connection
from server.link.errors import EngineGone, LinkGarbled
from server.link.failures import error_of
from server.link.frames import Buffer, FrameReader, FrameWriter
from server.link.messages import NOT_TOLD, Answers, Asks, AsksBlock, Hello, Seen, Table, decode_from_engine, encode
from server.link.process_watch import ProcessWatch
from server.link.remote_catalog import RemoteCatalog
from server.link.remote_model import NO_BATCH, RemoteAnswer, RemoteModel, RemoteTicket, Taker

if TYPE_CHECKING:
    from server.protocol import Column, Rows

__all__ = ["WorkerEnd"]

_log = logging.getLogger(__name__)

#: Between two looks whether an engine listens.
_LOOK_S = 0.05
#: Between two looks for requests that an engine that hangs will not answer, and how far past their deadline they are.
_SWEEP_S = 0.5
_OVERDUE_S = 2.0
#: What callers are told while the engine starts: about the time in which TensorFlow is loaded.
_RETRY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class _Parcel:
    """Rows that this tick will send, those of its requests end to end."""

    rows: Rows
    tickets: Sequence[RemoteTicket]


class WorkerEnd:
    """Speaks to the engine at ``address``, a path. Everything is called on the event loop's thread, after ``start``."""

    def __init__(self, address: str, *, pid: int) -> None:
        self._address = address
        self._hello = Hello(pid)
        self.catalog = RemoteCatalog(self)
        #: Why there is no engine; None exactly while there is one.
        self.missing: str | None = "the engine is being started"
        self._ids = itertools.count(1)
        #: Requests that the engine has not answered, by id. Those that were given up stay until it does, or is gone.
        self._waiting: dict[int, RemoteTicket] = {}
        #: What this tick will send, by model.
        self._outbox: dict[RemoteModel, list[_Parcel]] = {}
        self._cancels: list[int] = []
        self._flush_is_due = False
        self._watch: ProcessWatch | None = None
        self._connection: Connection | None = None

    def start(self) -> None:
        """Begin to look for an engine."""
        self._loop = asyncio.get_running_loop()
        self._meeting = self._loop.create_task(self._meet())
        self._timer = self._loop.call_later(_SWEEP_S, self._sweep)

    def close(self) -> None:
        """Speak to nobody any more. Requests that wait fail."""
        self._timer.cancel()
        self._meeting.cancel()
        self._lose("the server is stopping")

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
        """Send rows at the end of the tick. Errors: EngineGone; LinkGarbled for rows that are not the model's."""
        self._check(model, rows)
        ticket = RemoteTicket(
            self,
            next(self._ids),
            model,
            rows.n,
            deadline_s=deadline_s,
            caller=caller,
            priority=priority,
            on_done=on_done,
        )
        self._put(model, _Parcel(rows, (ticket,)))
        return ticket

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
        """Send the rows of several requests, end to end, at the end of the tick. Errors: as ``ask``."""
        self._check(model, rows)
        tickets = [
            RemoteTicket(
                self,
                next(self._ids),
                model,
                count,
                deadline_s=deadline_s,
                caller=caller,
                priority=None,
                on_done=None,
                taker=taker,
                tag=tag,
            )
            for count, tag, caller in zip(counts, tags, callers, strict=True)
        ]
        self._put(model, _Parcel(rows, tickets))
        return tickets

    def _check(self, model: RemoteModel, rows: Rows) -> None:
        if self.missing is not None:
            raise self._gone()
        for codec, column in zip(model.inputs, rows.columns, strict=True):
            misfit = codec.misfit(column, rows.n)
            if misfit is not None:
                raise LinkGarbled(misfit)

    def _put(self, model: RemoteModel, parcel: _Parcel) -> None:
        for ticket in parcel.tickets:
            self._waiting[ticket.id] = ticket
        self._outbox.setdefault(model, []).append(parcel)
        self._flush_soon()

    def cancel(self, ticket: RemoteTicket) -> bool:
        """Take a request back: at once if it alone was to be sent, else by asking the engine.

        False if it was answered.
        """
        if ticket.is_done:
            return False
        if self._take_out(ticket):
            del self._waiting[ticket.id]
            _answer(ticket, RemoteAnswer(Cancelled("the request was cancelled before it was executed")))
        else:
            self._cancels.append(ticket.id)
            self._flush_soon()
        return True

    def _take_out(self, ticket: RemoteTicket) -> bool:
        """Take a request's parcel out of the outbox; False if it is not there, or holds others' rows too."""
        unsent = self._outbox.get(ticket.model, [])
        for place, parcel in enumerate(unsent):
            if len(parcel.tickets) == 1 and parcel.tickets[0] is ticket:
                del unsent[place]
                if not unsent:
                    del self._outbox[ticket.model]
                return True
        return False

    # Sending.

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        if self.missing is not None or not (self._outbox or self._cancels):
            return
        outbox, self._outbox = self._outbox, {}
        cancels, self._cancels = self._cancels, []
        writer = FrameWriter()
        blocks = [_block(model, parcels, writer) for model, parcels in outbox.items()]
        self._say(writer.message(encode(Asks(blocks, cancels))))

    def _say(self, frames: Sequence[Buffer]) -> None:
        assert self._connection is not None, "there is an engine"
        self._connection.send(frames)

    # Receiving.

    def _on_message(self, connection: Connection, frames: list[Buffer]) -> None:
        if connection is not self._connection:
            return  # it was given up
        reader = FrameReader(frames)
        message = decode_from_engine(reader.header)
        if isinstance(message, Answers):
            self._take_answers(message, reader)
        else:
            self._take_table(message)

    def _take_table(self, table: Table) -> None:
        if self._watch is None:
            self._watch = ProcessWatch(table.pid, self._on_engine_exit)
            self.missing = None
        self.catalog.take(table)
        # What was decided by the table before leaves before the engine is told that it may forget it.
        self._flush()
        self._say(FrameWriter().message(encode(Seen(table.serial))))

    def _take_answers(self, answers: Answers, reader: FrameReader) -> None:
        done: list[tuple[RemoteTicket, Sequence[Column], int, float, int]] = []
        for block in answers.blocks:
            model = self._waiting[block.ids[0]].model
            read = [codec.read(reader, sum(block.counts)) for codec in model.outputs]
            starts = accumulate(block.counts, initial=0)
            for request_id, start, queue_s, batch in zip(block.ids, starts, block.queue_s, block.batches, strict=False):
                done.append((self._waiting.pop(request_id), read, start, queue_s, batch))
        reader.close()
        for ticket, columns, start, queue_s, batch in done:
            if ticket.taker is not None:
                _ran(ticket, columns, start, queue_s)
                continue
            own: list[Column] = [column[start : start + ticket.n_rows] for column in columns]
            facts = NO_BATCH if batch == NOT_TOLD else answers.batches[batch]
            _answer(ticket, RemoteAnswer(None, own, facts, queue_s))
        for failure in answers.failures:
            _answer(self._waiting.pop(failure.id), RemoteAnswer(error_of(failure)))

    # The engine's coming and going.

    async def _meet(self) -> None:
        """Connect as soon as somebody listens, and say who this is."""
        make = partial(Connection, self._on_message, self._on_lost)
        while True:
            try:
                _, connection = await self._loop.create_unix_connection(make, self._address)
            except OSError:
                await asyncio.sleep(_LOOK_S)
                continue
            if connection.is_open:
                self._connection = connection
                self._say(FrameWriter().message(encode(self._hello)))
                return

    def _on_lost(self, connection: Connection) -> None:
        if connection is self._connection:
            self._on_engine_exit()

    def _on_engine_exit(self) -> None:
        if self.missing is None:
            _log.error("the engine process has ended; %d requests of this worker fail", len(self._waiting))
        self._lose("the engine process ended and is being started again")
        self._meeting = self._loop.create_task(self._meet())

    def _lose(self, why: str) -> None:
        self.missing = why
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        self.catalog.clear()
        self._outbox, self._cancels = {}, []
        waiting, self._waiting = self._waiting, {}
        for ticket in waiting.values():
            _answer(ticket, RemoteAnswer(self._gone()))

    def _gone(self) -> RowwiseError:
        return EngineGone(f"{self.missing}: send the request again", retry_after_s=_RETRY_AFTER_S)

    def _sweep(self) -> None:
        """Give up what an engine that hangs will not answer in time."""
        limit_s = time.monotonic() - _OVERDUE_S
        overdue = [ticket for ticket in self._waiting.values() if ticket.deadline_s < limit_s]
        for ticket in overdue:
            _answer(ticket, RemoteAnswer(DeadlineExceeded("the engine did not answer by the request's deadline")))
            ticket.deadline_s = math.inf
        self._timer = self._loop.call_later(_SWEEP_S, self._sweep)


def _block(model: RemoteModel, parcels: Sequence[_Parcel], writer: FrameWriter) -> AsksBlock:
    """Write the rows of one model's requests, and return what is said of them."""
    for place, codec in enumerate(model.inputs):
        codec.write(writer, [parcel.rows.columns[place] for parcel in parcels])
    tickets = [ticket for parcel in parcels for ticket in parcel.tickets]
    return AsksBlock(
        model.number,
        [ticket.id for ticket in tickets],
        [ticket.n_rows for ticket in tickets],
        [ticket.deadline_s for ticket in tickets],
        [ticket.caller for ticket in tickets],
        [ticket.priority for ticket in tickets],
        [size for parcel in parcels for lengths in parcel.rows.lengths or () for size in lengths],
    )


def _answer(ticket: RemoteTicket, answer: RemoteAnswer) -> None:
    if ticket.is_done:
        return
    taker, tag, on_done = ticket.taker, ticket.tag, ticket.on_done
    ticket.end()
    try:
        if taker is not None:
            taker.ended(tag, answer)
        elif on_done is not None:
            on_done(answer)
    except Exception:  # noqa: BLE001 - one caller's fault must not reach the others of the same message
        _log.exception("on_done of a request to model %r failed", ticket.model.name)


def _ran(ticket: RemoteTicket, columns: Sequence[Column], start: int, queue_s: float) -> None:
    if ticket.is_done:
        return
    taker, tag = ticket.taker, ticket.tag
    assert taker is not None, "it was asked for with others"
    ticket.end()
    try:
        taker.ran(tag, columns, start, start + ticket.n_rows, queue_s)
    except Exception:  # noqa: BLE001 - as above
        _log.exception("the taker of a request to model %r failed", ticket.model.name)
