"""One worker as the engine sees it: what it has asked for, and what this tick will tell it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from server.errors import RowwiseError
from server.link.connection import Connection
from server.link.failures import failure_of
from server.link.frames import FrameWriter
from server.link.messages import NOT_TOLD, Answers, AnswersBlock, BatchFacts, Failure, Table, encode
from server.link.process_watch import ProcessWatch

if TYPE_CHECKING:
    from server.link.engine_end import Target
    from server.protocol import Column
    from server.web.interfaces import Answer, EntryPoint, Ticket

__all__ = ["Ask", "Asked", "Peer"]

_log = logging.getLogger(__name__)


class Ask:
    """One request of a worker, until it is answered."""

    __slots__ = ("_peer", "handle", "id", "n_rows", "target", "ticket")

    def __init__(self, peer: Peer, request_id: int, target: Target, n_rows: int) -> None:
        self._peer = peer
        self.id = request_id
        self.target = target
        self.n_rows = n_rows
        #: None until it was admitted alone.
        self.ticket: Ticket | None = None
        #: What takes it back if it was admitted together with others.
        self.handle: object = None

    def cancel(self) -> None:
        """Take it back, as far as it does not run."""
        if self.ticket is not None:
            self.ticket.cancel()
        elif self.handle is not None and self.target.model is not None:
            self.target.model.take_back(self.handle)

    def done(self, answer: Answer) -> None:
        """Take the answer; it is sent at the end of the tick."""
        peer = self._peer
        if answer.error is not None:
            peer.fail(self.id, answer.error)
            return
        misfit = self.target.misfit(answer.outputs, self.n_rows)
        if misfit is None:
            self.ran(answer.outputs, 0, self.n_rows, answer.queue_s, answer)
        else:
            self.unfit(misfit)

    def ran(
        self, outputs: Sequence[Column], start: int, stop: int, queue_s: float, answer: Answer | None = None
    ) -> None:
        """Take its rows of outputs that fit; they are sent at the end of the tick. ``answer`` says how they ran."""
        self._peer.succeed((self, outputs, start, stop, queue_s, answer))

    def unfit(self, misfit: str) -> None:
        """Fail: outputs are not as the signature says, by which the worker would read them."""
        _log.error("an answer of model %r can't be sent: output %s", self.target.served.name, misfit)
        self._peer.fail(self.id, RowwiseError(f"the model's output {misfit}"))


class Asked:
    """Takes the answers of requests of one entry point that were admitted together. Their tags are ``Ask``."""

    __slots__ = ("_looked_at", "_misfit", "_target")

    def __init__(self, target: Target) -> None:
        self._target = target
        self._looked_at: Sequence[Column] | None = None
        self._misfit: str | None = None

    def ran(self, tag: object, outputs: Sequence[Column], start: int, stop: int, queue_s: float) -> None:
        """Take a request's rows of a batch's outputs."""
        ask: Ask = tag  # type: ignore[assignment]
        if outputs is not self._looked_at:
            self._looked_at = outputs
            self._misfit = self._target.misfit(outputs, len(outputs[0]))
        if self._misfit is None:
            ask.ran(outputs, start, stop, queue_s)
        else:
            ask.unfit(self._misfit)

    def ended(self, tag: object, answer: Answer) -> None:
        """Take an error, or what was put together from several batches."""
        ask: Ask = tag  # type: ignore[assignment]
        ask.done(answer)


#: Where a request's rows lie: from here to there in these outputs. How long they waited, and how they ran, if anybody
#: may want to know. A tuple, as there is one for each request.
_Result: TypeAlias = "tuple[Ask, Sequence[Column], int, int, float, Answer | None]"


class Peer:
    """A worker's process. ``open`` are its requests that have no answer yet, by its own ids.

    ``on_waited`` is told how long the rows of how many requests that have their answer waited, seconds.
    """

    def __init__(
        self,
        connection: Connection,
        watch: ProcessWatch,
        *,
        seen: int,
        on_waited: Callable[[EntryPoint, float, int], None],
    ) -> None:
        self._connection = connection
        self._on_waited = on_waited
        self._watch = watch
        #: The serial of the oldest table that it may still go by.
        self.seen = seen
        self.open: dict[int, Ask] = {}
        self._results: dict[Target, list[_Result]] = {}
        self._failures: list[Failure] = []
        self._flush_is_due = False
        self._has_ended = False

    @property
    def pid(self) -> int:
        """Its process."""
        return self._watch.pid

    def send_table(self, table: Table) -> None:
        """Tell it what serves."""
        self._connection.send(FrameWriter().message(encode(table)))

    def succeed(self, result: _Result) -> None:
        """Send outputs at the end of the tick."""
        ask = result[0]
        self.open.pop(ask.id, None)
        # What it leads to leads back to it, and only the cycle collector would find them.
        ask.handle = None
        self._results.setdefault(ask.target, []).append(result)
        if not self._flush_is_due:
            self._flush_soon()

    def fail(self, request_id: int, error: RowwiseError) -> None:
        """Send an error at the end of the tick."""
        ask = self.open.pop(request_id, None)
        if ask is not None:
            ask.handle = None
        self._failures.append(failure_of(request_id, error))
        self._flush_soon()

    def cancel(self, request_id: int) -> None:
        """Take a request back whose caller has left; its answer is sent all the same, as the worker waits for it."""
        ask = self.open.get(request_id)
        if ask is not None:
            ask.cancel()

    def end(self) -> None:
        """The process has ended, or is to be forgotten: nobody waits for what it asked for."""
        self._has_ended = True
        self._watch.stop()
        self._connection.close()
        for request_id in list(self.open):
            self.cancel(request_id)
        self.open = {}

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        results, self._results = self._results, {}
        failures, self._failures = self._failures, []
        for target, done in results.items():
            # Most of them came in one tick, and so waited equally long.
            for queue_s, n in Counter([result[4] for result in done]).items():
                self._on_waited(target.served, queue_s, n)
        if self._has_ended:
            return
        writer = FrameWriter()
        batches = _Batches()
        blocks = [_block(target, done, writer, batches) for target, done in results.items()]
        self._connection.send(writer.message(encode(Answers(batches.facts, blocks, failures))))


class _Batches:
    """The batches that a message tells of, each once."""

    def __init__(self) -> None:
        self.facts: list[BatchFacts] = []
        self._places: dict[int, int] = {}

    def place(self, answer: Answer) -> int:
        """Return where in the message an answer's batch is told of."""
        place = self._places.setdefault(answer.batch_id, len(self.facts))
        if place == len(self.facts):
            self.facts.append(
                BatchFacts(answer.batch_id, answer.bucket, answer.batch_rows, answer.compute_s, str(answer.reason))
            )
        return place


def _block(target: Target, done: Sequence[_Result], writer: FrameWriter, batches: _Batches) -> AnswersBlock:
    """Write the rows of one entry point's requests, and return what is said of them."""
    pieces = list(_pieces(done))
    for place, codec in enumerate(target.outputs):
        codec.write(writer, [outputs[place][start:stop] for outputs, start, stop in pieces])
    return AnswersBlock(
        target.number,
        [ask.id for ask, *_ in done],
        [ask.n_rows for ask, *_ in done],
        [NOT_TOLD if answer is None else batches.place(answer) for *_, answer in done],
        [queue_s for *_, queue_s, _ in done],
    )


def _pieces(done: Sequence[_Result]) -> Iterator[tuple[Sequence[Column], int, int]]:
    """Yield the rows of all results in order; those that lie end to end in one batch's outputs as one piece."""
    _, outputs, start, stop, *_ = done[0]
    for _, own, first, last, *_ in done[1:]:
        if own is outputs and first == stop:
            stop = last
            continue
        yield outputs, start, stop
        outputs, start, stop = own, first, last
    yield outputs, start, stop
