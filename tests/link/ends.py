"""Both ends of the link in one process, on one event loop, with models that do what a test tells them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from server.errors import RowwiseError
from server.link.engine_end import EngineEnd
from server.link.remote_model import RemoteAnswer, RemoteModel, RemoteTicket
from server.link.worker_end import WorkerEnd
from server.protocol import Rows
from server.signature import LengthAxis, ModelSignature, TensorSignature

SUM = ModelSignature(
    inputs=(TensorSignature(name="x", dtype="float32", shape=(3,)),),
    outputs=(TensorSignature(name="total", dtype="float32", shape=()),),
)
#: Strings and a variable length in, results of the example's length out.
ECHO = ModelSignature(
    inputs=(
        TensorSignature(name="tokens", dtype="int32", shape=("n", 2)),
        TensorSignature(name="text", dtype="string", shape=()),
    ),
    outputs=(
        TensorSignature(name="tokens", dtype="int32", shape=("n", 2)),
        TensorSignature(name="text", dtype="string", shape=()),
    ),
    axes=(LengthAxis(name="n", max=8, buckets=(4, 8)),),
)


@dataclass
class Answer:
    """An answer with fixed batch facts."""

    error: RowwiseError | None = None
    outputs: Sequence[Any] = ()
    batch_id: int = 7
    bucket: int = 8
    batch_rows: int = 5
    queue_s: float = 0.25
    compute_s: float = 0.5
    reason: str = "oldest"


@dataclass
class Request:
    """One request as the model got it; ``finish`` answers it."""

    rows: Rows
    timeout_s: float | None
    on_done: Callable[[Any], None]
    caller: str | None
    priority: int | None = None
    cancelled: bool = False

    def cancel(self) -> bool:
        self.cancelled = True
        return True

    def finish(self, answer: Answer | None = None) -> None:
        self.on_done(answer or Answer(outputs=outputs_of(self.rows)))


def outputs_of(rows: Rows) -> list[Any]:
    """Sums of one column, or the columns as they are."""
    return list(rows.columns) if len(rows.columns) > 1 else [np.asarray(rows.columns[0]).sum(axis=1, dtype=np.float32)]


@dataclass(eq=False)
class Model:
    """Answers at once, or when a test says so (``holds``)."""

    name: str = "sum"
    version: int = 1
    signature: ModelSignature = SUM
    entry: str = "predict"
    derivatives: Sequence[Any] = ()
    holds: bool = False
    refusal: Exception | None = None
    requests: list[Request] = field(default_factory=list)
    together: list[Together] = field(default_factory=list)

    def predict(
        self,
        rows: Rows,
        *,
        timeout_s: float | None,
        on_done: Callable[[Any], None],
        spent_s: float = 0.0,
        caller: str | None = None,
        priority: int | None = None,
    ) -> Request:
        if self.refusal is not None:
            raise self.refusal
        request = Request(rows, timeout_s, on_done, caller, priority)
        self.requests.append(request)
        if not self.holds:
            request.finish()
        return request

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
    ) -> list[object]:
        """All of them are one batch, whose outputs they have in common."""
        if isinstance(self.refusal, RowwiseError):
            for tag in tags:
                taker.ended(tag, Answer(error=self.refusal))
            return [None] * len(counts)
        if self.refusal is not None:
            raise self.refusal
        asked = Together(rows, counts, places, tags, callers, timeout_s, taker)
        self.together.append(asked)
        if not self.holds:
            asked.finish()
        return [(asked, tag) for tag in tags]

    def take_back(self, handle: Any) -> None:
        asked, tag = handle
        asked.taken_back.append(tag)


@dataclass
class Together:
    """Requests as the model got them at once; ``finish`` answers them all."""

    rows: Rows
    counts: Sequence[int]
    places: Sequence[int]
    tags: Sequence[object]
    callers: Sequence[str | None]
    timeout_s: float | None
    taker: Any
    taken_back: list[object] = field(default_factory=list)

    def finish(self, outputs: Sequence[Any] | None = None) -> None:
        found = outputs_of(self.rows) if outputs is None else outputs
        for count, place, tag in zip(self.counts, self.places, self.tags, strict=True):
            self.taker.ran(tag, found, place, place + count, 0.25)


@dataclass
class Serving:
    """What a catalog says of a model that serves."""

    model: Model
    labels: Sequence[str] = ()
    default_timeout_s: float = 30.0


class Process:
    """A process that does nothing, to be ended."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-S", "-c", "import signal; signal.pause()"])
        self.pid = self._process.pid

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Ends:
    """An engine's end and ``n`` workers' ends. Processes that are watched are ones that a test can kill."""

    def __init__(self, *models: Model, n_workers: int = 1, engine_starts: bool = True) -> None:
        self._engine_starts = engine_starts
        self.serving = [Serving(model) for model in models]
        self.waits: list[tuple[str, float]] = []
        self._directory = tempfile.TemporaryDirectory()
        self.address = str(Path(self._directory.name) / "link")
        self.engine_process = Process()
        self.worker_processes = [Process() for _ in range(n_workers)]
        self.engine = self.new_engine(self.engine_process.pid)
        self.workers = [WorkerEnd(self.address, pid=process.pid) for process in self.worker_processes]
        self.worker = self.workers[0]

    def new_engine(self, pid: int) -> EngineEnd:
        return EngineEnd(
            self.address,
            pid=pid,
            serving=lambda: self.serving,
            on_waited=lambda served, queue_s, n: self.waits.extend([(served.name, queue_s)] * n),
        )

    def model(self, name: str = "sum", *, worker: int = 0) -> RemoteModel:
        return self.workers[worker].catalog.resolve(name)

    async def __aenter__(self) -> Self:
        if self._engine_starts:
            await self.engine.start()
        for worker in self.workers:
            worker.start()
        if self._engine_starts:
            await until(lambda: all(worker.missing is None for worker in self.workers))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            worker.close()
        self.engine.close()
        for process in (self.engine_process, *self.worker_processes):
            process.close()
        self._directory.cleanup()


class Asked:
    """One request of a worker, and its answers, which should be one."""

    def __init__(self, model: RemoteModel, *columns: Any, timeout_s: float | None = None, lengths: Any = None) -> None:
        self.answers: list[RemoteAnswer] = []
        rows = Rows(len(columns[0]), tuple(columns), lengths)
        self.ticket: RemoteTicket = model.predict(rows, timeout_s=timeout_s, on_done=self.answers.append)

    @property
    def error(self) -> RowwiseError | None:
        (answer,) = self.answers
        return answer.error

    async def answer(self) -> RemoteAnswer:
        await until(lambda: self.answers)
        (answer,) = self.answers
        return answer


def ask(model: RemoteModel, *values: float) -> Asked:
    """Ask for the sum of three times each value."""
    return Asked(model, np.repeat(np.array(values, np.float32), 3).reshape(-1, 3))


async def until(holds: Callable[[], object], *, timeout_s: float = 10.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110 - what is waited for may be in another process
            await asyncio.sleep(0.002)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run one test's coroutine."""

    async def all_of_it() -> None:
        await test()

    asyncio.run(all_of_it())


class Lot:
    """Requests that a worker asks for together, and what came of each: rows of an output, or an error."""

    def __init__(self, model: RemoteModel, *counts: int, timeout_s: float | None = None) -> None:
        values = np.arange(sum(counts), dtype=np.float32)
        self.results: list[tuple[int, Any]] = []
        #: The arrays of which answers were told, each once.
        self.outputs: list[Sequence[Any]] = []
        places = [sum(counts[:place]) for place in range(len(counts))]
        self.handles = model.predict_many(
            Rows(len(values), (np.repeat(values, 3).reshape(-1, 3),)),
            counts,
            places,
            tags=range(len(counts)),
            callers=[f"caller {place}" for place in range(len(counts))],
            timeout_s=timeout_s,
            spent_s=0.0,
            taker=self,
        )

    def ran(self, tag: Any, outputs: Sequence[Any], start: int, stop: int, queue_s: float) -> None:
        if not any(outputs is known for known in self.outputs):
            self.outputs.append(outputs)
        self.results.append((tag, outputs[0][start:stop].tolist()))

    def ended(self, tag: Any, answer: RemoteAnswer) -> None:
        self.results.append((tag, answer.error))
