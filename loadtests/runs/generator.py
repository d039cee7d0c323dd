"""The fast driver: one thread that waits in epoll for whichever connections have an answer.

Theory of operation. Requests are bytes that were made beforehand. A closed loop sends the next request on the
connection whose answer was read. An open loop has a schedule: what is due takes a free connection, or waits in line for
one, and is never left out. Latency counts from when a request was due, so that a server that stalls is charged with
everything that would have come meanwhile; a loop that waits for answers would send nothing then, and see one slow
request where callers see hundreds (coordinated omission). epoll's own timeout counts in milliseconds, so that an open
loop waits with ``select`` on the epoll's descriptor, to the microsecond.

Every request ends exactly once: right, answered with another status, wrong, broken, timed out, or never sent because
the time for answers was over before a connection was free.
"""

from __future__ import annotations

import gc
import select
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from loadtests.keepalive import Broken, KeepAlive
from loadtests.runs.arrivals import due_times, turns
from loadtests.runs.load import Load
from loadtests.runs.observations import Observations, Observer
from loadtests.runs.questions import Questions

__all__ = ["Generator", "Plan", "Progress"]

#: Seconds between two looks at what timed out, and two reports.
_LOOK_S = 0.1
_REPORT_S = 0.5
#: Seconds that answers are waited for at most once somebody has stopped the run.
_STOPPED_S = 1.0
_NEVER = float("nan")
#: Characters of a body that are shown as an example.
_SHOWN = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one process has to do. ``host`` is the URL's host and port, as the header says it; ``ca`` a file in PEM."""

    address: tuple[str, int]
    host: str
    questions: tuple[Questions, ...]
    load: Load
    is_tls: bool = False
    ca: str | None = None
    #: Which of how many processes this is.
    index: int = 0
    n_processes: int = 1

    def tls(self) -> ssl.SSLContext | None:
        """Return how to trust the server; None: no TLS."""
        return ssl.create_default_context(cafile=self.ca) if self.is_tls else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is, and what the last half second was like."""

    at_s: float
    n_done: int
    n_failed: int
    p50_ms: float
    p99_ms: float


class Generator:
    """Carries out a plan once. Errors: OSError if no connection can be made at the start."""

    def __init__(
        self,
        plan: Plan,
        *,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._load = plan.load
        self._plan = plan
        self._on_progress, self._is_stopped = on_progress, is_stopped
        self._requests = [questions.requests(plan.host) for questions in plan.questions]
        self._judges = [questions.judge() for questions in plan.questions]
        self._turns: Sequence[int] = turns([questions.weight for questions in plan.questions], seed=plan.load.seed)
        #: Which question of each model comes next. Processes begin apart, so that they don't send the same in step.
        self._next = [len(requests) * plan.index // plan.n_processes for requests in self._requests]
        self._n_sent = 0
        #: fd -> (model, question, due_s, sent_s). In the order of sending, so that the first has waited longest.
        self._waiting: dict[int, tuple[int, int, float, float]] = {}
        self._links = KeepAlive(plan.address, patience_s=plan.load.timeout_s, tls=plan.tls())
        self._seen = Observer([questions.model for questions in plan.questions])
        #: Of an open loop: connections that nobody waits on, and when what waits for one was due.
        self._free: list[int] = []
        self._line: deque[float] = deque()
        self._start_s = 0.0
        self._looked_s = self._reported_s = 0.0
        self._n_reported = 0

    def run(self) -> Observations:
        """Send, wait for the last answers, and return what became of every request."""
        load = self._load
        try:
            for _ in range((load.connections if load.is_open else load.callers) or 1):
                self._links.open()
            gc.collect()
            gc.disable()
            self._start_s, cpu_s = time.perf_counter(), time.process_time()
            try:
                elapsed_s = self._open_loop() if load.is_open else self._closed_loop()
                busy = min(1.0, (time.process_time() - cpu_s) / max(elapsed_s, 1e-9))
                self._drain()
            finally:
                gc.enable()
        finally:
            self._links.close()
        return self._seen.finish(
            warmup_s=load.warmup_s, elapsed_s=elapsed_s, busy=busy, is_interrupted=self._is_stopped()
        )

    def _now(self) -> float:
        return time.perf_counter() - self._start_s

    # The loops. Each returns when the last request was sent.

    def _closed_loop(self) -> float:
        load = self._load
        end_s = load.warmup_s + load.duration_s
        for fd in self._links.fds():
            self._send(fd)
        while (now_s := self._now()) < end_s and self._goes_on(now_s):
            for fd, _ in self._links.poll(min(_LOOK_S, end_s - now_s)):
                free = self._receive(fd)
                if free is not None and self._now() < end_s:
                    self._send(free)
            for free in self._expire(self._now()):
                self._send(free)
        return self._now()

    def _open_loop(self) -> float:
        load = self._load
        end_s = load.warmup_s + load.duration_s
        assert load.rate is not None, "open"
        offset = self._plan.index / self._plan.n_processes
        due: Iterator[float] = due_times(load.arrivals, rate=load.rate, seed=load.seed, offset=offset)
        self._free = self._links.fds()
        next_s, n_due = next(due), 0
        fileno = self._links.fileno()
        while self._goes_on(now_s := self._now(), n_due):
            while next_s <= now_s and next_s < end_s and n_due < load.max_requests:
                n_due += 1
                if self._free:
                    self._send(self._free.pop(), next_s)
                else:
                    self._seen.n_waited += 1
                    self._line.append(next_s)
                next_s = next(due)
            if now_s >= end_s:
                break
            if select.select([fileno], [], [], max(0.0, min(next_s, end_s, now_s + _LOOK_S) - self._now()))[0]:
                self._take_answers(0)
            self._free += self._expire(self._now())
            self._serve_line()
        return self._now()

    def _goes_on(self, now_s: float, n: int | None = None) -> bool:
        if now_s - self._reported_s >= _REPORT_S:
            self._report(now_s)
        return (self._n_sent if n is None else n) < self._load.max_requests and not self._is_stopped()

    def _drain(self) -> None:
        """Wait for the answers that are still to come, as long as one may take."""
        is_stopped = self._is_stopped()
        end_s = self._now() + min(self._load.timeout_s, _STOPPED_S if is_stopped else self._load.timeout_s)
        while (self._waiting or self._line) and (now_s := self._now()) < end_s:
            self._take_answers(min(_LOOK_S, end_s - now_s))
            self._free += self._expire(self._now())
            self._serve_line()
        if is_stopped:
            # What nobody wanted to wait for has not failed.
            return
        now_s = self._now()
        for model, _, due_s, sent_s in self._waiting.values():
            self._seen.add(model, due_s, sent_s, now_s, self._timed_out())
        for due_s in self._line:
            reason = self._seen.failure("never sent", "no connection was free until the time for answers was over")
            self._seen.add(self._turn()[0], due_s, _NEVER, now_s, reason)

    def _take_answers(self, wait_s: float) -> None:
        for fd, _ in self._links.poll(wait_s):
            free = self._receive(fd)
            if free is not None and self._load.is_open:
                self._free.append(free)
                self._serve_line()

    def _serve_line(self) -> None:
        while self._line and self._free:
            self._send(self._free.pop(), self._line.popleft())

    # One request.

    def _turn(self) -> tuple[int, int]:
        """Return the model and the question that come next."""
        model = self._turns[self._n_sent % len(self._turns)]
        self._n_sent += 1
        index = self._next[model] % len(self._requests[model])
        self._next[model] += 1
        return model, index

    def _send(self, fd: int, due_s: float | None = None) -> None:
        if not self._load.is_open and self._n_sent >= self._load.max_requests:
            return
        model, index = self._turn()
        sent_s = self._now()
        self._waiting[fd] = model, index, sent_s if due_s is None else due_s, sent_s
        self._links.send(fd, self._requests[model][index])

    def _receive(self, fd: int) -> int | None:
        """Take what a connection has; return the connection that is free for the next request, if one is."""
        try:
            answer = self._links.receive(fd)
        except Broken as error:
            return self._broke(fd, str(error))
        if answer is None:
            return None
        waiting = self._waiting.pop(fd, None)
        if waiting is None:
            return self._broke(fd, "an answer that nobody asked for")
        done_s = self._now()
        model, index, due_s, sent_s = waiting
        status, body = answer
        if status != 200:
            outcome = self._seen.failure(f"status {status}", _shown(body))
        elif self._judges[model].accepts(index, body):
            outcome = 0
        else:
            outcome = self._seen.failure("wrong answer", f"question {index}: {_shown(body)}")
        self._seen.add(model, due_s, sent_s, done_s, outcome)
        return fd

    def _broke(self, fd: int, reason: str) -> int | None:
        """Count what was lost with a connection, and replace it. One that was idle may close at any time."""
        waiting = self._waiting.pop(fd, None)
        if waiting is not None:
            model, _, due_s, sent_s = waiting
            self._seen.add(model, due_s, sent_s, self._now(), self._seen.failure("no answer", reason))
        elif self._load.is_open and fd in self._free:
            self._free.remove(fd)
        return self._replace(fd)

    def _replace(self, fd: int) -> int | None:
        try:
            return self._links.replace(fd)
        except OSError:
            # Nobody answers there for now: the others go on, and the next look tries again.
            return None

    def _expire(self, now_s: float) -> list[int]:
        """Give up what has waited too long; return connections that took their place."""
        if now_s - self._looked_s < _LOOK_S:
            return []
        self._looked_s = now_s
        fresh: list[int] = []
        while self._waiting:
            fd, (model, _, due_s, sent_s) = next(iter(self._waiting.items()))
            if now_s - sent_s < self._load.timeout_s:
                break
            del self._waiting[fd]
            self._seen.add(model, due_s, sent_s, now_s, self._timed_out())
            replaced = self._replace(fd)
            fresh += [] if replaced is None else [replaced]
        wanted = (self._load.connections if self._load.is_open else self._load.callers) or 1
        while len(self._links) < wanted:
            try:
                fresh.append(self._links.open())
            except OSError:
                break
        return fresh

    def _timed_out(self) -> int:
        return self._seen.failure("no answer", f"none within {self._load.timeout_s:g} s")

    def _report(self, now_s: float) -> None:
        p50_ms, p99_ms = self._seen.glance(self._n_reported)
        self._reported_s, self._n_reported = now_s, len(self._seen)
        self._on_progress(
            Progress(at_s=now_s, n_done=len(self._seen), n_failed=self._seen.n_failed, p50_ms=p50_ms, p99_ms=p99_ms)
        )


def _shown(body: bytes) -> str:
    return body[:_SHOWN].decode(errors="replace")
