"""Loading a model must not make callers wait: its thread leaves the interpreter to others most of the time.

Half a second of Python on a second thread takes half of the interpreter from the event loop, which at 80 % of what it
can do has only a fifth to give: the rest becomes waiting, and the 99th percentile three times what it was. Priorities
of threads don't help, as the one that has the interpreter keeps the others out whatever its priority. So while requests
come in, the loading thread sleeps after each short turn, twice as long as the turn was: seen to by a profile function,
which Python calls at every call that the thread makes. And threads change more often meanwhile than every 5 ms.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["standing_back"]

#: Seconds of a turn, and how much longer than a turn the pause is.
_TURN_S = 5e-4
_PAUSE = 2.0
#: A turn that was longer had native code in it, or waited itself: the interpreter was free for others meanwhile.
_LONGEST_PAUSE_S = 4e-3
#: Seconds after which a thread that computes gives the interpreter to one that waits.
_SWITCH_S = 2e-4


@contextmanager
def standing_back(is_busy: Callable[[], bool]) -> Iterator[None]:
    """Let this thread stand back, inside the block, while ``is_busy`` says so. For one thread at a time."""
    turn_s = time.perf_counter()

    def turn(_frame: object, _event: str, _argument: object) -> None:
        nonlocal turn_s
        now_s = time.perf_counter()
        if now_s - turn_s < _TURN_S:
            return
        if is_busy():
            time.sleep(min(_LONGEST_PAUSE_S, _PAUSE * (now_s - turn_s)))
            now_s = time.perf_counter()
        turn_s = now_s

    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _SWITCH_S))
    sys.setprofile(turn)
    try:
        yield
    finally:
        sys.setprofile(None)
        sys.setswitchinterval(before)
