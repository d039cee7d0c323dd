"""A double of a served model: it answers what a test tells it, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from server.batching import CostTable, Returning
from server.errors import RowwiseError
from server.protocol import Column, Rows
from server.signature import LengthAxis, ModelSignature, TensorSignature
from server.statistics import EntryStatistics
from server.web.interfaces import ServedDerivative

#: Three numbers in, their sum out.
SUM = ModelSignature(
    inputs=(TensorSignature(name="x", dtype="float32", shape=(3,)),),
    outputs=(TensorSignature(name="total", dtype="float32", shape=()),),
)
SEQUENCE = ModelSignature(
    inputs=(
        TensorSignature(name="tokens", dtype="int32", shape=("n", 2)),
        TensorSignature(name="text", dtype="string", shape=()),
    ),
    outputs=(TensorSignature(name="logits", dtype="bfloat16", shape=("n",)),),
    axes=(LengthAxis(name="n", max=8, buckets=(4, 8)),),
)


@dataclass
class ScriptedAnswer:
    """An answer with fixed batch facts."""

    error: RowwiseError | None = None
    outputs: Sequence[Column] = ()
    batch_id: int = 7
    bucket: int = 8
    batch_rows: int = 5
    queue_s: float = 0.001
    compute_s: float = 0.002
    reason: str = "executor free"


@dataclass
class ScriptedTicket:
    """Remembers that it was cancelled."""

    cancelled: bool = False

    def cancel(self) -> bool:
        self.cancelled = True
        return True


@dataclass
class ScriptedModel:
    """Answers with row sums at once; ``refusal`` is raised instead, ``failure`` answered; ``holds`` waits."""

    name: str
    version: int
    signature: ModelSignature = SUM
    entry: str = "predict"
    derivatives: Sequence[ServedDerivative] = ()
    refusal: Exception | None = None
    refusal_of_all: RowwiseError | None = None
    failure: RowwiseError | None = None
    outputs: Sequence[Column] | None = None
    holds: bool = False
    #: Fewer rows than this wait for others; ``returning`` counts those.
    n_awaited: int = 0
    free_in_s: float = 0.0
    returning: Returning | None = None
    rows: list[Rows] = field(default_factory=list)
    timeouts_s: list[float | None] = field(default_factory=list)
    spent_s: list[float] = field(default_factory=list)
    callers: list[str | None] = field(default_factory=list)
    priorities: list[int | None] = field(default_factory=list)
    statistics: EntryStatistics = field(default_factory=EntryStatistics)
    batch_sizes: Sequence[int] = (1, 4, 16)
    cost_tables: Mapping[tuple[int, ...], CostTable] = field(
        default_factory=lambda: {(): CostTable({1: 1e-3, 4: 2e-3, 16: 4e-3})}
    )
    tickets: list[ScriptedTicket] = field(default_factory=list)
    held: list[Callable[[Any], None]] = field(default_factory=list)
    admitted: asyncio.Event = field(default_factory=asyncio.Event)

    def predict(
        self,
        rows: Rows,
        *,
        timeout_s: float | None,
        on_done: Callable[[Any], None],
        spent_s: float = 0.0,
        caller: str | None = None,
        priority: int | None = None,
    ) -> ScriptedTicket:
        if self.refusal is not None:
            raise self.refusal
        self.rows.append(rows)
        self.timeouts_s.append(timeout_s)
        self.spent_s.append(spent_s)
        self.callers.append(caller)
        self.priorities.append(priority)
        self.tickets.append(ScriptedTicket())
        self.admitted.set()
        if self.holds:
            self.held.append(on_done)
        elif self.failure is not None:
            on_done(ScriptedAnswer(error=self.failure))
        else:
            on_done(ScriptedAnswer(outputs=self.sums(rows) if self.outputs is None else self.outputs))
        return self.tickets[-1]

    def awaits(self, n_rows: int) -> bool:
        return n_rows < self.n_awaited

    def refuses_all(self, *, timeout_s: float | None, spent_s: float) -> RowwiseError | None:
        return self.refusal_of_all

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
        taker: Any,
    ) -> list[ScriptedTicket | None]:
        tickets: list[ScriptedTicket | None] = []
        for count, place, tag, caller in zip(counts, places, tags, callers, strict=True):
            stop = place + count
            lengths = None if rows.lengths is None else rows.lengths[place:stop]
            own = Rows(count, tuple(column[place:stop] for column in rows.columns), lengths)
            try:
                tickets.append(
                    self.predict(
                        own, timeout_s=timeout_s, on_done=partial(self.take, taker, tag), spent_s=spent_s, caller=caller
                    )
                )
            except RowwiseError as error:
                tickets.append(None)
                taker.ended(tag, ScriptedAnswer(error=error))
        return tickets

    @staticmethod
    def take(taker: Any, tag: object, answer: ScriptedAnswer) -> None:
        if answer.error is None:
            taker.ran(tag, answer.outputs, 0, len(answer.outputs[0]), answer.queue_s)
        else:
            taker.ended(tag, answer)

    def take_back(self, handle: ScriptedTicket | None) -> None:
        if handle is not None:
            handle.cancel()

    @staticmethod
    def sums(rows: Rows) -> list[Column]:
        return [np.asarray(rows.columns[0]).sum(axis=1, dtype=np.float32)]
