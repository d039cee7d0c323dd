"""One worker as the engine sees it: what it has asked for, and what this tick will tell it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from server.errors import RowwiseError
from server.link.failures import failure_of
from server.link.frames import FrameWriter
from server.link.loop_socket import LoopSocket
from server.link.messages import Answers, AnswersBlock, BatchFacts, Failure, Table, encode
from server.link.process_watch import ProcessWatch

if TYPE_CHECKING:
    from server.link.engine_end import Target
    from server.web.interfaces import Answer, EntryPoint, Ticket

__all__ = ["Ask", "Peer"]

_log = logging.getLogger(__name__)


class Ask:
    """One request of a worker, until it is answered."""

    __slots__ = ("_on_waited", "_peer", "id", "n_rows", "target", "ticket")

    def __init__(
        self,
        peer: Peer,
        request_id: int,
        target: Target,
        n_rows: int,
        on_waited: Callable[[EntryPoint, float], None],
    ) -> None:
        self._peer = peer
        self._on_waited = on_waited
        self.id = request_id
        self.target = target
        self.n_rows = n_rows
        #: None until it was admitted.
        self.ticket: Ticket | None = None

    def done(self, answer: Answer) -> None:
        """Take the answer; it is sent at the end of the tick."""
        peer = self._peer
        if answer.error is not None:
            peer.fail(self.id, answer.error)
            return
        for codec, column in zip(self.target.outputs, answer.outputs, strict=True):
            misfit = codec.misfit(column, self.n_rows)
            if misfit is not None:
                _log.error("an answer of model %r can't be sent: output %s", self.target.served.name, misfit)
                peer.fail(self.id, RowwiseError(f"the model's output {misfit}"))
                return
        self._on_waited(self.target.served, answer.queue_s)
        peer.succeed(self, answer)


class Peer:
    """A worker's process. ``open`` are its requests that have no answer yet, by its own ids."""

    def __init__(self, identity: bytes, socket: LoopSocket, watch: ProcessWatch, *, seen: int) -> None:
        self._identity = identity
        self._socket = socket
        self._watch = watch
        #: The serial of the oldest table that it may still go by.
        self.seen = seen
        self.open: dict[int, Ask] = {}
        self._answers: dict[Target, list[tuple[Ask, Answer]]] = {}
        self._failures: list[Failure] = []
        self._flush_is_due = False
        self._has_ended = False

    @property
    def pid(self) -> int:
        """Its process."""
        return self._watch.pid

    def send_table(self, table: Table) -> None:
        """Tell it what serves."""
        self._socket.send([self._identity, *FrameWriter().message(encode(table))])

    def succeed(self, ask: Ask, answer: Answer) -> None:
        """Send outputs at the end of the tick."""
        self.open.pop(ask.id, None)
        self._answers.setdefault(ask.target, []).append((ask, answer))
        self._flush_soon()

    def fail(self, request_id: int, error: RowwiseError) -> None:
        """Send an error at the end of the tick."""
        self.open.pop(request_id, None)
        self._failures.append(failure_of(request_id, error))
        self._flush_soon()

    def cancel(self, request_id: int) -> None:
        """Take a request back whose caller has left; its answer is sent all the same, as the worker waits for it."""
        ask = self.open.get(request_id)
        if ask is not None and ask.ticket is not None:
            ask.ticket.cancel()

    def end(self) -> None:
        """The process has ended, or is to be forgotten: nobody waits for what it asked for."""
        self._has_ended = True
        self._watch.stop()
        for request_id in list(self.open):
            self.cancel(request_id)
        self.open = {}

    def _flush_soon(self) -> None:
        if not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        answers, self._answers = self._answers, {}
        failures, self._failures = self._failures, []
        if self._has_ended:
            return
        writer = FrameWriter()
        places: dict[int, int] = {}
        batches: list[BatchFacts] = []
        blocks = []
        for target, done in answers.items():
            for place, codec in enumerate(target.outputs):
                codec.write(writer, [answer.outputs[place] for _, answer in done])
            for _, answer in done:
                if answer.batch_id not in places:
                    places[answer.batch_id] = len(batches)
                    batches.append(
                        BatchFacts(
                            answer.batch_id, answer.bucket, answer.batch_rows, answer.compute_s, str(answer.reason)
                        )
                    )
            blocks.append(
                AnswersBlock(
                    target.number,
                    [ask.id for ask, _ in done],
                    [ask.n_rows for ask, _ in done],
                    [places[answer.batch_id] for _, answer in done],
                    [answer.queue_s for _, answer in done],
                )
            )
        self._socket.send([self._identity, *writer.message(encode(Answers(batches, blocks, failures)))])
