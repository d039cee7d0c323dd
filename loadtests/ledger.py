"""An exact account of requests: each one that was sent is in one place of it, and all of them are.

A caller sends one request at a time, under an id of its own, and writes down how it ended. What can't be explained is
kept word for word: a wrong answer, a status that the manual does not have, somebody else's answer, a second answer, a
connection that broke where nothing was killed, silence.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Self

from loadtests.connection import Answer, Connection
from loadtests.small_models import Question

__all__ = ["Callers", "End", "Ledger"]

_PATIENCE_S = 60.0
_MAX_KEPT = 20
#: Statuses with which a server that is busy, or stops, or lost its engine, sends a caller away for a while.
_LATER = {429, 503}


class End(StrEnum):
    """How a request ended."""

    RIGHT = "right"
    #: The error that its own bad example must get.
    BAD_EXAMPLE = "bad example"
    #: 429 or 503, with Retry-After.
    LATER = "sent away"
    #: The connection ended without an answer.
    BROKEN = "broken"
    #: The caller hung up before the answer.
    LEFT = "left"
    UNEXPLAINED = "unexplained"


class Ledger:
    """Who sent what, and how it ended. Used by any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.n_sent = 0
        self.ends: Counter[End] = Counter()
        self.unexplained: list[str] = []
        #: When requests that were answered right were sent, and how long they took, seconds.
        self.latencies: list[tuple[float, float]] = []
        #: When each connection broke.
        self.broken_at: list[float] = []

    def sent(self) -> None:
        """Note that a request goes out."""
        with self._lock:
            self.n_sent += 1

    def ended(self, end: End, sentence: str = "", *, began_s: float = 0.0) -> None:
        """Note how one ended."""
        now_s = time.monotonic()
        with self._lock:
            self.ends[end] += 1
            if end is End.UNEXPLAINED and len(self.unexplained) < _MAX_KEPT:
                self.unexplained.append(sentence)
            elif end is End.RIGHT:
                self.latencies.append((began_s, now_s - began_s))
            elif end is End.BROKEN:
                self.broken_at.append(now_s)

    def difference(self) -> int:
        """Return how many requests are in no place, or in two."""
        return self.n_sent - sum(self.ends.values())


class Callers:
    """Callers in threads, until they are stopped.

    ``ask`` makes the request of a number. ``leaving``: share of the requests whose caller hangs up without reading.
    ``slow``: share that are sent byte by byte and read late. ``pause_s`` between a caller's requests.
    """

    _numbers = itertools.count(1)

    def __init__(
        self,
        url: str,
        ledger: Ledger,
        ask: Callable[[int], Question],
        *,
        n: int,
        leaving: float = 0.0,
        slow: float = 0.0,
        pause_s: float = 0.0,
    ) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._address = (host, int(port))
        self._ledger = ledger
        self._ask = ask
        self._leaving = leaving
        self._slow = slow
        self._pause_s = pause_s
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._loop, args=(number,), daemon=True) for number in range(n)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _loop(self, seed: int) -> None:
        rng = random.Random(seed)
        connection: Connection | None = None
        while not self._stopped.is_set():
            if connection is None:
                try:
                    connection = Connection(self._address, patience_s=_PATIENCE_S)
                except OSError:
                    # Nobody listens: no request was sent.
                    self._stopped.wait(0.05)
                    continue
            end, stays_open = self._one(connection, next(self._numbers), rng)
            if not stays_open:
                connection.close()
                connection = None
            if end is not End.RIGHT:
                self._stopped.wait(0.01)
            if self._pause_s:
                self._stopped.wait(rng.expovariate(1.0) * self._pause_s)
        if connection is not None:
            connection.close()

    def _one(self, connection: Connection, number: int, rng: random.Random) -> tuple[End, bool]:
        """Send a request and write down how it ended. Return that, and whether the connection can go on."""
        asked, ledger = self._ask(number), self._ledger
        request_id = f"request-{number}"
        leaves, is_slow = rng.random() < self._leaving, rng.random() < self._slow
        began_s = time.monotonic()
        ledger.sent()
        stays_open, sentence = False, ""
        try:
            self._send(connection, asked, request_id, is_slow=is_slow)
            if leaves:
                self._stopped.wait(rng.uniform(0.0, 0.01))
                end = End.LEFT
            else:
                if is_slow:
                    self._stopped.wait(0.2)
                answer = connection.receive()
                end, sentence = _judged(asked, request_id, answer)
                if connection.has_more():
                    end, sentence = End.UNEXPLAINED, f"{request_id}: more was sent after its answer"
                stays_open = end is not End.UNEXPLAINED and answer.headers.get("connection") != "close"
        except TimeoutError:
            end, sentence = End.UNEXPLAINED, f"{request_id}: no answer within {_PATIENCE_S:.0f} s"
        except OSError:
            end = End.LEFT if leaves else End.BROKEN
        ledger.ended(end, sentence, began_s=began_s)
        return end, stays_open

    def _send(self, connection: Connection, asked: Question, request_id: str, *, is_slow: bool) -> None:
        head = (
            f"POST {asked.path} HTTP/1.1\r\nHost: {self._address[0]}\r\nX-Request-Id: {request_id}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(asked.body)}\r\n\r\n"
        ).encode()
        if not is_slow:
            connection.send(head + asked.body)
            return
        connection.send(head)
        for at in range(0, len(asked.body), 4):
            connection.send(asked.body[at : at + 4])
            self._stopped.wait(0.01)


def _judged(asked: Question, request_id: str, answer: Answer) -> tuple[End, str]:
    """Return what an answer is to its request."""
    status, body, echoed = answer.status, answer.body, answer.headers.get("x-request-id")
    said = f"{request_id}, {asked.path} {asked.body[:200]!r}: {status} {body[:300]!r}"
    if echoed != request_id:
        return End.UNEXPLAINED, f"{said} is the answer to {echoed}"
    if status == 200:
        return (End.RIGHT, "") if asked.accepts(body) else (End.UNEXPLAINED, f"{said} is wrong")
    if not _is_error(body):
        return End.UNEXPLAINED, f"{said} says no error"
    if status in asked.errors:
        return End.BAD_EXAMPLE, ""
    if status in _LATER:
        later = answer.headers.get("retry-after", "")
        return (End.LATER, "") if later.isdigit() and int(later) >= 1 else (End.UNEXPLAINED, f"{said}: no Retry-After")
    return End.UNEXPLAINED, said


def _is_error(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body)["error"], str)
    except (ValueError, KeyError, TypeError):
        return False
