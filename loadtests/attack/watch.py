"""Somebody who uses the server meanwhile: are they answered, rightly, and as soon as before?"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from loadtests.connection import Connection
from loadtests.driver import percentile
from loadtests.workload import load

__all__ = ["Bystander", "Seen"]

_PAUSE_S = 0.002
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a bystander saw: when each answer came and after how many seconds; what was wrong, if anything."""

    answers: tuple[tuple[float, float], ...]
    faults: tuple[str, ...]

    def p99_ms(self, spans: list[tuple[float, float]]) -> float:
        """Return the 99th percentile of what began in one of the spans of time, milliseconds."""
        took = sorted(took_s for at_s, took_s in self.answers if any(begin <= at_s < end for begin, end in spans))
        return percentile(took, 0.99) * 1e3 if took else float("nan")


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
