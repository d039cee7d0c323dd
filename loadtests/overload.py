"""An open loop: requests come at their own times, whether or not earlier ones were answered.

A closed loop slows down with the server and so never overloads it. Here a schedule (a Poisson process) says when each
request is due; it takes a connection that is free. Every request has a timeout, of which the server is told what is
left, and may be tried again some times after it was refused. Goodput is what was answered rightly within the timeout.
Times count from when a request was due, so that a driver that falls behind flatters nobody.

The connections are opened before the clock starts, as those of a proxy are: opening thousands at once measures the
kernel's queue of new ones, which is full then, and its timers. A request that finds none free is not sent: with fewer
of them than (rate x timeout) a server is waited for after all.

    python -m loadtests.overload http://127.0.0.1:8000 WORKLOAD --rate 6000 --timeout-ms 1000 --retries 3
"""

from __future__ import annotations

import heapq
import json
import random
import time
from array import array
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from loadtests.driver import percentile
from loadtests.keepalive import Broken, KeepAlive, address_of
from loadtests.workload import Workload, load

__all__ = ["Overload", "overload"]

_PATIENCE_S = 30.0
#: So many are opened at a time.
_OPENED_AT_ONCE = 100
#: Seconds, at least, before a refused request is tried again; twice as many at most.
_RETRY_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Overload:
    """What an open loop saw. ``statuses`` counts answers; ``late`` those that were right and came after the timeout."""

    rate: float
    duration_s: float
    n_sent: int
    goodput: float
    late: int
    wrong: int
    unanswered: int
    unsent: int
    statuses: dict[str, int] = field(default_factory=dict)
    refused_p50_ms: float = 0.0
    refused_p99_ms: float = 0.0
    answered_p99_ms: float = 0.0
    busy: float = 0.0


class _Call:
    """One try of one request. ``due_s`` is when it was to be sent, ``sent_s`` when it was."""

    __slots__ = ("due_s", "index", "n_retries", "sent_s")

    def __init__(self, index: int, n_retries: int, due_s: float) -> None:
        self.index = index
        self.n_retries = n_retries
        self.due_s = due_s
        self.sent_s = 0.0


class _OpenLoop:
    """The connections, the schedule, and what came back."""

    def __init__(self, url: str, workload: Workload, *, timeout_s: float, connections: int, seed: int) -> None:
        host, port = address_of(url)
        self._workload = workload
        # Divided where the timeout goes.
        requests = workload.requests(f"{host}:{port}")
        self._requests = [request.partition(b"\r\nContent-Length: ") for request in requests]
        self._timeout_s = timeout_s
        self._right: list[set[bytes]] = [set() for _ in self._requests]
        self._rng = random.Random(seed)
        self._connections = KeepAlive((host, port), patience_s=_PATIENCE_S)
        self._free: list[int] = []
        self._busy: dict[int, _Call] = {}
        #: When each call is to be sent; the number breaks ties.
        self._schedule: list[tuple[float, int, _Call]] = []
        self._n_scheduled = 0
        self.counts: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.refused_ms = array("d")
        self.answered_ms = array("d")
        for number in range(connections):
            self._free.append(self._connections.open())
            if number % _OPENED_AT_ONCE == _OPENED_AT_ONCE - 1:
                time.sleep(0.02)

    def run(self, *, rate: float, duration_s: float, n_retries: int) -> None:
        """Send for so long, then wait for what is still due."""
        start_s = next_s = time.perf_counter()
        n_requests = 0
        while next_s < start_s + duration_s:
            self._at(_Call(n_requests % len(self._requests), n_retries, next_s))
            next_s += self._rng.expovariate(rate)
            n_requests += 1
        last_s = start_s + duration_s
        end_s = last_s + self._timeout_s + 1.0
        while (now_s := time.perf_counter()) < end_s and (self._schedule or self._busy):
            while self._schedule and self._schedule[0][0] <= now_s:
                call = heapq.heappop(self._schedule)[2]
                if call.due_s < last_s:
                    self._send(call, now_s)
            wait_s = min(end_s, self._schedule[0][0] if self._schedule else end_s) - time.perf_counter()
            for fd, _ in self._connections.poll(max(0.0, wait_s)):
                self._receive(fd)
        self.counts["unanswered"] += len(self._busy)

    def aclose(self) -> None:
        """Close every connection."""
        self._connections.close()

    def _at(self, call: _Call) -> None:
        self._n_scheduled += 1
        heapq.heappush(self._schedule, (call.due_s, self._n_scheduled, call))

    def _send(self, call: _Call, now_s: float) -> None:
        left_ms = int((call.due_s + self._timeout_s - now_s) * 1e3)
        if left_ms < 1 or not self._free:
            self.counts["unsent"] += 1
            return
        fd = self._free.pop()
        call.sent_s = now_s
        self._busy[fd] = call
        self.counts["sent"] += 1
        head, length, rest = self._requests[call.index]
        self._connections.send(fd, b"%s\r\nX-Request-Timeout-Ms: %d%s%s" % (head, left_ms, length, rest))

    def _receive(self, fd: int) -> None:
        try:
            answer = self._connections.receive(fd)
        except Broken:
            if fd in self._free:
                self._free.remove(fd)
            if self._busy.pop(fd, None) is not None:
                self.counts["unanswered"] += 1
            self._free.append(self._connections.replace(fd))
            return
        if answer is None:
            return
        call = self._busy.pop(fd)
        self._free.append(fd)
        self._count(call, *answer)

    def _count(self, call: _Call, status: int, body: bytes) -> None:
        now_s = time.perf_counter()
        self.statuses[str(status)] += 1
        if status != 200:
            self.refused_ms.append((now_s - call.sent_s) * 1e3)
            if call.n_retries:
                delay_s = _RETRY_S * (1 + self._rng.random())
                self._at(_Call(call.index, call.n_retries - 1, now_s + delay_s))
            return
        took_ms = (now_s - call.due_s) * 1e3
        self.answered_ms.append(took_ms)
        right = self._right[call.index]
        if body not in right:
            if not self._workload.accepts(call.index, body):
                self.counts["wrong"] += 1
                return
            right.add(body)
        self.counts["good" if took_ms <= self._timeout_s * 1e3 else "late"] += 1


def overload(
    url: str,
    workload: Workload,
    *,
    rate: float,
    timeout_s: float = 1.0,
    duration_s: float = 5.0,
    n_retries: int = 0,
    connections: int = 2_000,
    seed: int = 0,
) -> Overload:
    """Send ``rate`` requests a second to ``url``, each with a timeout, and return what became of them."""
    loop = _OpenLoop(url, workload, timeout_s=timeout_s, connections=connections, seed=seed)
    cpu_s, start_s = time.process_time(), time.perf_counter()
    try:
        loop.run(rate=rate, duration_s=duration_s, n_retries=n_retries)
    finally:
        loop.aclose()
    busy = (time.process_time() - cpu_s) / (time.perf_counter() - start_s)
    counts, refused, answered = loop.counts, sorted(loop.refused_ms), sorted(loop.answered_ms)
    return Overload(
        rate=rate,
        duration_s=duration_s,
        n_sent=counts["sent"],
        goodput=counts["good"] / duration_s,
        late=counts["late"],
        wrong=counts["wrong"],
        unanswered=counts["unanswered"],
        unsent=counts["unsent"],
        statuses=dict(loop.statuses),
        refused_p50_ms=percentile(refused, 0.50),
        refused_p99_ms=percentile(refused, 0.99),
        answered_p99_ms=percentile(answered, 0.99),
        busy=min(1.0, busy),
    )


def _command(
    url: Annotated[str, typer.Argument(help="Server, such as http://127.0.0.1:8000.")],
    workload: Annotated[Path, typer.Argument(help="File that `python -m loadtests.workload` wrote.")],
    rate: Annotated[float, typer.Option(min=0.1, help="Requests a second.")],
    timeout_ms: Annotated[int, typer.Option(min=1)] = 1_000,
    duration_s: Annotated[float, typer.Option(min=0.1)] = 5.0,
    retries: Annotated[int, typer.Option(min=0, help="How often a refused request is tried again.")] = 0,
    connections: Annotated[int, typer.Option(min=1, help="Open ones; rate x timeout of them overload.")] = 2_000,
) -> None:
    """Send requests at a rate that the server may not keep up with; print what became of them as JSON."""
    seen = overload(
        url,
        load(workload),
        rate=rate,
        timeout_s=timeout_ms / 1e3,
        duration_s=duration_s,
        n_retries=retries,
        connections=connections,
    )
    print(json.dumps(asdict(seen)))
    raise typer.Exit(1 if seen.wrong else 0)


if __name__ == "__main__":
    typer.run(_command)
