"""Runs a target on inputs made from a seed, and holds it to its bounds: declared errors, time, memory."""

from __future__ import annotations

import faulthandler
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz_codecs.target import Target

__all__ = ["Broken", "Tally", "bound_memory", "run"]

#: Seconds of the processor's time that one input may take. Inputs have at most 16 KiB.
MAX_INPUT_S = 1.0
#: Seconds of the processor's time after which a target that gives no sign of life is ended, with its stack printed; and
#: as many times those by the clock, for one that waits: a run beside others' work gets little of the processor.
_HANG_S = 120
_IDLE_TIMES = 20
_SIGN_EVERY = 1_000
#: Bytes of address space that reading such inputs may add, all caches and allocators included.
_MAX_ADDED_BYTES = 2**29


class Broken(Exception):
    """A target did what it must not do."""


@dataclass
class Tally:
    """What came of a target's inputs."""

    name: str
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    took_s: float = 0.0

    @property
    def n_inputs(self) -> int:
        """Inputs that were read or refused."""
        return sum(self.outcomes.values())


def run(target: Target, *, n_inputs: int, seed: int, on_progress: Callable[[int], Any] = lambda _: None) -> Tally:
    """Give a target so many inputs. Errors: Broken, with the input."""
    tally = Tally(target.name)
    corpus = target.corpus()
    started_s = time.monotonic()
    for data in corpus:  # all of them are right, or refused for what they say
        _read(target, data, tally, "of the corpus")
    try:
        for number in range(n_inputs):
            if number % _SIGN_EVERY == 0:
                _watch(_HANG_S)
                on_progress(number)
            data = target.draw(random.Random((seed << 32) + number), corpus)
            _read(target, data, tally, f"{number} of seed {seed}")
    finally:
        _watch(0)
    tally.took_s = time.monotonic() - started_s
    return tally


def _watch(hang_s: float) -> None:
    """End the process if this is not called again in time; 0: never."""
    # What does not come back can't be interrupted otherwise. The signal's own effect comes after the stack is printed.
    faulthandler.register(signal.SIGPROF, chain=True)
    signal.setitimer(signal.ITIMER_PROF, hang_s)
    if hang_s:
        faulthandler.dump_traceback_later(hang_s * _IDLE_TIMES, exit=True)
    else:
        faulthandler.cancel_dump_traceback_later()


def _read(target: Target, data: bytes, tally: Tally, which: str) -> None:
    before_s = time.thread_time()
    try:
        tally.outcomes[target.read(data)] += 1
    except Exception as error:
        raise Broken(f"{target.name}: input {which}, {data!r}: {error!r}") from error
    spent_s = time.thread_time() - before_s
    if spent_s > tally.slowest_s:
        tally.slowest_s = spent_s
        if spent_s > MAX_INPUT_S:
            raise Broken(f"{target.name}: input {which}, {data!r}, took {spent_s:.3f} s")


def bound_memory() -> None:
    """Let this process take no more address space than it has and a bound: what would take more raises MemoryError."""
    n_pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = n_pages * resource.getpagesize() + _MAX_ADDED_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
