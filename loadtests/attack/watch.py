"""Somebody who uses the server meanwhile: are they answered, rightly, and as soon as without attacks?

Attacks and quiet take turns, and each stretch of attacks is compared with the quiet right before and after it: what
else goes on on the machine, and drifts, is in both. Who asks would be on another machine, and so would attackers: he
has short turns of the processor here, and they give way, so that it is the server that makes him wait, if anybody. A
p99 is that of pieces of equally many answers, their median: one odd moment in a long stretch is not the whole of it,
and short stretches are not measured by other means than long ones.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from loadtests.connection import Connection
from loadtests.driver import percentile
from loadtests.workload import load
from server.build.short_turns import ShortTurns

__all__ = ["Bystander", "Seen", "Span", "Stretch", "slowdowns"]

#: Seconds by the monotonic clock, from and to.
Span = tuple[float, float]

_PAUSE_S = 0.002
_PATIENCE_S = 30.0
#: Answers of which a p99 is taken: the third slowest of them.
_PIECE = 200


@dataclass(frozen=True, slots=True)
class Seen:
    """What a bystander saw: when each answer came and after how many seconds; what was wrong, if anything."""

    answers: tuple[tuple[float, float], ...]
    faults: tuple[str, ...]

    def p99_ms(self, spans: Sequence[Span]) -> float:
        """Return the 99th percentile of what began in the spans, milliseconds: the median of that of its pieces.

        It is infinite where nothing was answered.
        """
        took = [took_s for at_s, took_s in self.answers if any(begin <= at_s < end for begin, end in spans)]
        if not took:
            return math.inf
        n_pieces = max(1, len(took) // _PIECE)
        bounds = [len(took) * number // n_pieces for number in range(n_pieces + 1)]
        of_pieces = sorted(percentile(sorted(took[start:stop]), 0.99) for start, stop in itertools.pairwise(bounds))
        return percentile(of_pieces, 0.5) * 1e3


@dataclass(frozen=True, slots=True)
class Stretch:
    """Attacks one after the other, the quiet before and after them, and what the attacks were."""

    attacked: tuple[Span, ...]
    before: Span
    after: Span
    attacks: tuple[str, ...] = ()


def slowdowns(seen: Seen, stretches: Sequence[Stretch]) -> list[float]:
    """Return how many times its p99 in quiet a bystander's was in each stretch of attacks."""
    return [seen.p99_ms(each.attacked) / seen.p99_ms((each.before, each.after)) for each in stretches]


class Bystander:
    """Asks one model one thing after the other, in a process of its own, for as long as the ``with`` block lasts."""

    def __init__(self, url: str, token: str, workload: Path) -> None:
        context = get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_ask, args=(url, token, workload, theirs), daemon=True)
        self.seen = Seen((), ())

    def __enter__(self) -> Self:
        self._process.start()
        assert self._ours.recv() == "begun"
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.send("stop")
        self.seen = self._ours.recv() if self._ours.poll(2 * _PATIENCE_S) else Seen((), ("it hangs",))
        self._process.join(5.0)


def _ask(url: str, token: str, path: Path, pipe: Pipe) -> None:
    workload = load(path)
    address = urlsplit(url)
    head = (
        f"POST {workload.path} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    )
    answers: list[tuple[float, float]] = []
    faults: list[str] = []
    connection: Connection | None = None
    ShortTurns().__enter__()  # for as long as the process lives
    pipe.send("begun")
    number = 0
    while not pipe.poll():
        index = number % len(workload.bodies)
        number += 1
        body = workload.bodies[index]
        began_s = time.monotonic()
        try:
            if connection is None:
                connection = Connection((str(address.hostname), int(address.port or 80)), patience_s=_PATIENCE_S)
            connection.send(f"{head}{len(body)}\r\n\r\n".encode() + body)
            answer = connection.receive()
        except OSError as error:
            faults.append(f"no answer: {type(error).__name__}: {error}")
            connection = None
            time.sleep(0.1)
            continue
        answers.append((began_s, time.monotonic() - began_s))
        if answer.status != 200:
            faults.append(f"{answer.status}: {json.dumps(answer.body.decode('latin-1')[:200])}")
        elif not workload.accepts(index, answer.body):
            faults.append(f"a wrong answer to request {index}")
        time.sleep(_PAUSE_S)
    pipe.recv()
    pipe.send(Seen(tuple(answers), tuple(faults)))
