"""A closed-loop load driver that keeps up with the server, on one core, for any server that speaks HTTP/1.1.

Each caller is one keep-alive connection: it sends a request, waits for the answer, checks it, sends the next one.
Requests are taken in turn from the workload, so neighbours in a batch are always different examples.

Theory of operation. One thread waits in epoll for whichever connections have an answer, and handles each with one
``recv`` and one ``send``; the request bytes were made beforehand. An answer that is byte for byte one that was
checked before, for the same request, is right without parsing it again: batches of different sizes may differ in
the last bit, so each request has a few right answers, and all of them are soon known.

How much load it can make is measured, not assumed: against ``loadtests.responder``, and as ``busy`` in every
result, the share of the time that the driver's own core was at work. Near 1, the driver was the limit.
"""

from __future__ import annotations

import gc
import json
import math
import sys
import time
from array import array
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from loadtests.keepalive import Broken, KeepAlive, address_of
from loadtests.workload import Workload, load

__all__ = ["PATIENCE_S", "Measurement", "Ordered", "drive", "percentile", "send_each_once"]

#: Seconds without any answer after which a server counts as hung.
PATIENCE_S = 30.0


class Ordered(Protocol):
    """Numbers, ascending: a list, an array of either kind."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one run saw, in the time after the warm-up.

    ``failures`` counts wrong and missing answers by kind, over the whole run, warm-up included; ``first_failure``
    shows one. Latencies are from before the request is sent until its answer was read, in microseconds.
    """

    callers: int
    duration_s: float
    n_answers: int
    requests_per_s: float
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float
    busy: float
    failures: dict[str, int] = field(default_factory=dict)
    first_failure: str | None = None

    @classmethod
    def from_json(cls, text: str) -> Measurement:
        """Read what the command prints."""
        return cls(**json.loads(text))


class _Load:
    """The connections, and what came back on them."""

    def __init__(self, url: str, workload: Workload, *, callers: int, patience_s: float) -> None:
        host, port = address_of(url)
        self._patience_s = patience_s
        self._workload = workload
        requests = workload.requests(f"{host}:{port}")
        #: What is sent first, and what right after it.
        self._requests = [_in_two(request) if workload.in_two else (request, b"") for request in requests]
        #: By request, a few each: comparing with them takes less than a long body's hash.
        self._right: list[list[bytes]] = [[] for _ in self._requests]
        self._connections = KeepAlive(address_of(url), patience_s=patience_s)
        #: fd -> (request, when it was sent). Only connections that wait for an answer are in it.
        self._waiting: dict[int, tuple[int, float]] = {}
        self._turn = 0
        self.latencies = array("d")
        self.failures: Counter[str] = Counter()
        self.first_failure: str | None = None
        #: Bodies by request, if they are to be kept.
        self.bodies: dict[int, bytes] | None = None
        for _ in range(callers):
            self._connections.open()

    def run(self, *, until_s: float | None, n_requests: int | None = None) -> None:
        """Keep every connection busy until a time, or until so many requests were sent; then await the last answers."""
        limit = sys.maxsize if n_requests is None else self._turn + n_requests
        for fd in self._connections.fds():
            if fd not in self._waiting and self._turn < limit:
                self._send(fd)
        clock, waiting, poll, receive = time.perf_counter, self._waiting, self._connections.poll, self._receive
        while waiting:
            ready = poll(self._patience_s)
            if not ready:
                raise TimeoutError(f"{len(waiting)} requests got no answer within {self._patience_s:g} s")
            for fd, _ in ready:
                now = clock()
                free = receive(fd, now)
                if free is not None and self._turn < limit and (until_s is None or now < until_s):
                    self._send(free)

    def _receive(self, fd: int, now: float) -> int | None:
        """Take what a connection has; return the connection that is free for the next request, if one is."""
        try:
            answer = self._connections.receive(fd)
        except Broken as error:
            return self._replace(fd, str(error))
        if answer is None:
            return None
        if fd not in self._waiting:
            return self._replace(fd, "an answer that nobody asked for")
        index, sent = self._waiting.pop(fd)
        self.latencies.append(now - sent)
        status, body = answer
        if status != 200 or body not in self._right[index]:
            self._check(index, status, body)
        if self.bodies is not None:
            self.bodies[index] = body
        return fd

    def aclose(self) -> None:
        """Close every connection."""
        self._connections.close()

    def _send(self, fd: int) -> None:
        index = self._turn % len(self._requests)
        self._turn += 1
        request, rest = self._requests[index]
        self._waiting[fd] = index, time.perf_counter()
        self._connections.send(fd, request)
        if rest:
            self._connections.send(fd, rest)

    def _check(self, index: int, status: int, body: bytes) -> None:
        if status != 200:
            self._fail(f"status {status}", body)
        elif self._workload.accepts(index, body):
            self._right[index].append(body)
        else:
            self._fail("wrong answer", b"request %d: %s" % (index, body))

    def _fail(self, kind: str, detail: bytes) -> None:
        self.failures[kind] += 1
        if self.first_failure is None:
            self.first_failure = f"{kind}: {detail[:500].decode(errors='replace')}"

    def _replace(self, fd: int, reason: str) -> int:
        self._fail("no answer", reason.encode())
        self._waiting.pop(fd, None)
        return self._connections.replace(fd)


def _in_two(request: bytes) -> tuple[bytes, bytes]:
    end = request.index(b"\r\n\r\n") + 4
    return request[:end], request[end:]


def drive(
    url: str,
    workload: Workload,
    *,
    callers: int,
    warmup_s: float = 0.3,
    duration_s: float = 1.0,
    patience_s: float = PATIENCE_S,
) -> Measurement:
    """Load ``url`` with ``callers`` connections and return what was measured after the warm-up.

    Errors: OSError if there is nobody to connect to; TimeoutError if no answer comes for ``patience_s``.
    """
    target = _Load(url, workload, callers=callers, patience_s=patience_s)
    gc.collect()
    gc.disable()
    try:
        target.run(until_s=time.perf_counter() + warmup_s)
        target.latencies = array("d")
        start, cpu = time.perf_counter(), time.process_time()
        target.run(until_s=start + duration_s)
        took, cpu = time.perf_counter() - start, time.process_time() - cpu
    finally:
        gc.enable()
        target.aclose()
    return _measured(target, callers=callers, took_s=took, cpu_s=cpu)


def send_each_once(
    url: str, workload: Workload, *, callers: int, patience_s: float = PATIENCE_S
) -> tuple[Measurement, list[bytes]]:
    """Send every request of the workload exactly once and return the measurement and the bodies, in order.

    The body of a request that got no answer is empty.
    """
    target = _Load(url, workload, callers=callers, patience_s=patience_s)
    target.bodies = {}
    start, cpu = time.perf_counter(), time.process_time()
    try:
        target.run(until_s=None, n_requests=len(workload.bodies))
    finally:
        target.aclose()
    took, cpu = time.perf_counter() - start, time.process_time() - cpu
    bodies = [target.bodies.get(index, b"") for index in range(len(workload.bodies))]
    return _measured(target, callers=callers, took_s=took, cpu_s=cpu), bodies


def percentile(ordered: Ordered, share: float) -> float:
    """Return the smallest value that at least ``share`` of the ascending values don't exceed; 0 of none."""
    if not len(ordered):
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _measured(target: _Load, *, callers: int, took_s: float, cpu_s: float) -> Measurement:
    ordered = array("d", sorted(target.latencies))
    return Measurement(
        callers=callers,
        duration_s=took_s,
        n_answers=len(ordered),
        requests_per_s=len(ordered) / took_s,
        p50_us=percentile(ordered, 0.50) * 1e6,
        p90_us=percentile(ordered, 0.90) * 1e6,
        p99_us=percentile(ordered, 0.99) * 1e6,
        max_us=percentile(ordered, 1.0) * 1e6,
        busy=min(1.0, cpu_s / took_s),
        failures=dict(target.failures),
        first_failure=target.first_failure,
    )


def _command(
    url: Annotated[str, typer.Argument(help="Server, such as http://127.0.0.1:8000.")],
    workload: Annotated[Path, typer.Argument(help="File that `python -m loadtests.workload` wrote.")],
    callers: Annotated[int, typer.Option(min=1)] = 32,
    warmup_s: Annotated[float, typer.Option(min=0)] = 0.3,
    duration_s: Annotated[float, typer.Option(min=0.01)] = 1.0,
) -> None:
    """Load a server and print the measurement as JSON. Exit 1 if an answer was wrong or missing."""
    measured: Any = drive(url, load(workload), callers=callers, warmup_s=warmup_s, duration_s=duration_s)
    print(json.dumps(asdict(measured)))
    raise typer.Exit(1 if measured.failures else 0)


if __name__ == "__main__":
    typer.run(_command)
