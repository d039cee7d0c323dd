"""The engine's end of the link: takes rows of all workers, sends their answers, and says what serves.

Theory of operation. A worker goes by the last table that it was sent, so what a table once named must go on answering
until no worker can ask for it any more. ``announce`` sends a new table and returns when every worker has said that it
goes by it; as messages keep their order, everything that was asked by older tables has come in by then. Whoever
unloads a version announces its leaving first, and so fails no request.

A worker's process is watched, and its connection: when either ends, what its callers wait for is taken back.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from server.errors import RowwiseError
from server.link.columns import ColumnCodec
from server.link.connection import Connection
from server.link.errors import LinkError
from server.link.frames import Buffer, FrameReader
from server.link.messages import Asks, AsksBlock, Derivative, Entry, Hello, Served, Table, decode_from_worker
from server.link.peer import Ask, Asked, Peer
from server.link.process_watch import ProcessWatch
from server.protocol import Rows

if TYPE_CHECKING:
    from server.protocol import Column
    from server.web.interfaces import EntryPoint, ServedModel

__all__ = ["EngineEnd", "Serving", "Target"]

_log = logging.getLogger(__name__)

#: What a worker that does not react may hold up a switch, seconds. One that has ended holds up nothing.
_SEEN_S = 5.0

#: A request's deadline, by the system's monotonic clock; its caller; its priority.
_Terms = tuple[float, str | None, int | None]


class Serving(Protocol):
    """What the catalog says of a version that serves."""

    @property
    def model(self) -> ServedModel:
        """Who answers."""

    @property
    def labels(self) -> Sequence[str]:
        """The labels that lead to this version."""

    @property
    def default_timeout_s(self) -> float:
        """The deadline of a request that names none."""


class Target:
    """An entry point that workers may ask, and what reads and writes its rows."""

    __slots__ = ("inputs", "left_with", "model", "number", "outputs", "served")

    def __init__(self, number: int, served: EntryPoint, model: ServedModel | None) -> None:
        self.number = number
        self.served = served
        #: Who admits several requests at once; None for what admits them one by one.
        self.model = model
        self.inputs = [ColumnCodec(tensor) for tensor in served.signature.inputs]
        self.outputs = [ColumnCodec(tensor) for tensor in served.signature.outputs]
        #: Serial of the first table without it; None while it is in the newest.
        self.left_with: int | None = None

    def misfit(self, outputs: Sequence[Column], n_rows: int) -> str | None:
        """Return why outputs can't be sent, or None."""
        for codec, column in zip(self.outputs, outputs, strict=True):
            misfit = codec.misfit(column, n_rows)
            if misfit is not None:
                return misfit
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _Lot:
    """Requests of one entry point that nothing but their rows and callers tells apart; rows lie end to end."""

    target: Target
    asks: Sequence[Ask]
    rows: Rows
    deadline_s: float
    callers: Sequence[str | None]
    priority: int | None


class EngineEnd:
    """Serves workers at ``address``, a path. ``serving`` says what serves now; everything is called on the event loop.

    ``on_waited`` is told how long the rows of how many requests that have their answer waited, seconds.
    """

    def __init__(
        self,
        address: str,
        *,
        pid: int,
        serving: Callable[[], Iterable[Serving]],
        on_waited: Callable[[EntryPoint, float, int], None],
    ) -> None:
        self._address = address
        self._pid = pid
        self._serving = serving
        self._on_waited = on_waited
        self._numbers = itertools.count(1)
        self._targets: dict[int, Target] = {}
        self._peers: dict[Connection, Peer] = {}
        self._serial = 0
        self._table = Table(0, pid, ())
        #: Set and replaced whenever a worker has said what it goes by, or has ended.
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Begin to answer workers. Errors: OSError."""
        self._renew()
        self._server = await asyncio.get_running_loop().create_unix_server(
            lambda: Connection(self._on_message, self._forget), self._address
        )

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.close()
        for connection in list(self._peers):
            self._forget(connection)

    async def announce(self) -> None:
        """Tell every worker what serves, and return when no request by an older table can come any more."""
        self._renew()
        serial = self._serial
        for peer in self._peers.values():
            peer.send_table(self._table)
        await self._until(lambda: all(peer.seen >= serial for peer in self._peers.values()), _SEEN_S)

    async def until_alone(self, timeout_s: float) -> None:
        """Return when no worker is left, at most after ``timeout_s``."""
        await self._until(lambda: not self._peers, timeout_s)

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():
                    await self._news.wait()
        except TimeoutError:
            _log.warning("%d workers did not react within %g s", len(self._peers), timeout_s)

    def _tell_news(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    # What serves.

    def _renew(self) -> None:
        """Make the table of what serves now, under a new serial."""
        self._serial += 1
        by_model = {id(target.served): target for target in self._targets.values()}
        listed = []
        kept: set[int] = set()
        for serving in self._serving():
            entries = []
            for derivative, served in _entry_points(serving.model):
                joint = serving.model if derivative is None else None
                target = by_model.get(id(served)) or self._new_target(served, joint)
                kept.add(target.number)
                entries.append(Entry(target.number, served.entry, served.signature, derivative))
            listed.append(
                Served(
                    serving.model.name,
                    serving.model.version,
                    tuple(serving.labels),
                    serving.default_timeout_s,
                    tuple(entries),
                )
            )
        for target in self._targets.values():
            if target.number not in kept and target.left_with is None:
                target.left_with = self._serial
        self._table = Table(self._serial, self._pid, tuple(listed))
        self._drop_unused()

    def _new_target(self, served: EntryPoint, model: ServedModel | None) -> Target:
        target = Target(next(self._numbers), served, model)
        self._targets[target.number] = target
        return target

    def _drop_unused(self) -> None:
        seen = min((peer.seen for peer in self._peers.values()), default=self._serial)
        for target in list(self._targets.values()):
            if target.left_with is not None and target.left_with <= seen:
                del self._targets[target.number]

    # What workers say.

    def _on_message(self, connection: Connection, frames: list[Buffer]) -> None:
        reader = FrameReader(frames)
        header = decode_from_worker(reader.header)
        if isinstance(header, Hello):
            self._meet(connection, header.pid)
            return
        peer = self._peers.get(connection)
        if peer is None:
            return  # it has ended; what it said last has just come
        if isinstance(header, Asks):
            self._take(peer, header, reader)
        else:
            peer.seen = max(peer.seen, header.serial)
            self._drop_unused()
            self._tell_news()

    def _meet(self, connection: Connection, pid: int) -> None:
        watch = ProcessWatch(pid, lambda: self._forget(connection))
        # It has asked for nothing yet, so for nothing that left before now.
        self._peers[connection] = Peer(connection, watch, seen=self._serial, on_waited=self._on_waited)
        self._peers[connection].send_table(self._table)

    def _forget(self, connection: Connection) -> None:
        peer = self._peers.pop(connection, None)
        if peer is None:
            return  # it has never said who it is, or has been forgotten already
        peer.end()
        self._drop_unused()
        self._tell_news()

    def _take(self, peer: Peer, asks: Asks, reader: FrameReader) -> None:
        lots: list[_Lot] = []
        try:
            for block in asks.blocks:
                lots += self._read(peer, block, reader)
            reader.close()
        except (LinkError, KeyError, ValueError) as error:
            # Both ends are of one version, so this is a bug of ours; callers get an answer all the same.
            _log.exception("rows from worker %d could not be read", peer.pid)
            for block in asks.blocks:
                for request_id in block.ids:
                    peer.fail(request_id, LinkError(f"the rows could not be read: {error}"))
            return
        for lot in lots:
            if len(lot.asks) == 1:
                self._start(peer, lot.asks[0], lot.rows, (lot.deadline_s, lot.callers[0], lot.priority))
            else:
                self._start_together(peer, lot)
        for request_id in asks.cancels:
            peer.cancel(request_id)

    def _read(self, peer: Peer, block: AsksBlock, reader: FrameReader) -> Iterator[_Lot]:
        """Yield requests that can be admitted together, or one by one."""
        target = self._targets[block.entry]
        columns = [codec.read(reader, sum(block.counts)) for codec in target.inputs]
        n_axes = len(target.served.signature.axes)
        told = iter(block.lengths)
        terms = list(zip(block.deadlines_s, block.priorities, strict=True))
        n_asked = len(block.ids)
        stop = stop_row = 0
        while stop < n_asked:
            first, row = stop, stop_row
            deadline_s, priority = terms[first]
            stop += 1
            stop_row += block.counts[first]
            # The core takes several at once if nothing but their rows tells them apart.
            while target.model is not None and priority is None and stop < n_asked and terms[stop] == terms[first]:
                stop_row += block.counts[stop]
                stop += 1
            lengths = [tuple(itertools.islice(told, n_axes)) for _ in range(row, stop_row)] if n_axes else None
            asks = [
                Ask(peer, request_id, target, count)
                for request_id, count in zip(block.ids[first:stop], block.counts[first:stop], strict=True)
            ]
            rows = Rows(stop_row - row, tuple(column[row:stop_row] for column in columns), lengths)
            yield _Lot(target, asks, rows, deadline_s, block.callers[first:stop], priority)

    @staticmethod
    def _start_together(peer: Peer, lot: _Lot) -> None:
        model = lot.target.model
        assert model is not None, "a lot of several is of a target that takes them"
        for ask in lot.asks:
            peer.open[ask.id] = ask
        try:
            handles = model.predict_many(
                lot.rows,
                counts := [ask.n_rows for ask in lot.asks],
                list(itertools.accumulate(counts[:-1], initial=0)),
                tags=lot.asks,
                callers=lot.callers,
                timeout_s=lot.deadline_s - time.monotonic(),
                spent_s=0.0,
                taker=Asked(lot.target),
            )
        except Exception:  # noqa: BLE001 - a bug of ours; the callers still get one answer each
            _log.exception("%d requests to model %r failed", len(lot.asks), lot.target.served.name)
            for ask in lot.asks:
                if ask.id in peer.open:
                    peer.fail(ask.id, RowwiseError("internal error: the server's log says more"))
            return
        for ask, handle in zip(lot.asks, handles, strict=True):
            ask.handle = handle

    @staticmethod
    def _start(peer: Peer, ask: Ask, rows: Rows, terms: _Terms) -> None:
        peer.open[ask.id] = ask
        deadline_s, caller, priority = terms
        try:
            timeout_s = deadline_s - time.monotonic()
            ask.ticket = ask.target.served.predict(
                rows, timeout_s=timeout_s, on_done=ask.done, caller=caller, priority=priority
            )
        except RowwiseError as error:
            peer.fail(ask.id, error)
        except Exception:  # noqa: BLE001 - a bug of ours; the caller still gets one answer
            _log.exception("a request to model %r failed", ask.target.served.name)
            peer.fail(ask.id, RowwiseError("internal error: the server's log says more"))


def _entry_points(model: ServedModel) -> Iterable[tuple[Derivative | None, EntryPoint]]:
    yield None, model
    for each in model.derivatives:
        yield Derivative(each.kind, each.output, tuple(each.wrt)), each.model
