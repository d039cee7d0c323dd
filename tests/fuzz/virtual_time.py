"""Time that passes when it is told to: clock, event-loop ticks and timers, on one thread, always in the same order."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count

__all__ = ["VirtualTime"]

#: More events than a run of some thousand moves has, unless something happens again and again at one time.
_MOST_EVENTS = 200_000


class VirtualTime:
    """The clock, ``defer`` and the timer of a batcher. ``late_s``: how late the timer rings."""

    def __init__(self, *, late_s: float = 0.0) -> None:
        self.now_s = 1_000.0
        self._late_s = late_s
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._n_events = 0
        self._deferred: list[Callable[[], None]] = []
        #: When the timer rings; set at the end of a tick, as the server's event loop does.
        self._timer_s = math.inf
        self._wakeup_s: Callable[[], float | None] = _never
        self._expire: Callable[[], None] = _nothing

    def drive(self, wakeup_s: Callable[[], float | None], expire: Callable[[], None]) -> None:
        """Say whose timer it is."""
        self._wakeup_s, self._expire = wakeup_s, expire

    def __call__(self) -> float:
        return self.now_s

    def defer(self, function: Callable[[], None]) -> None:
        """Call a function at the end of the tick."""
        self._deferred.append(function)

    def after(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function later."""
        heapq.heappush(self._events, (self.now_s + seconds, next(self._numbers), function))

    def end_tick(self) -> None:
        """Call what was deferred, and set the timer."""
        while self._deferred:
            functions, self._deferred = self._deferred, []
            for function in functions:
                function()
        wakeup_s = self._wakeup_s()
        if wakeup_s is not None and max(wakeup_s, self.now_s) < self._timer_s:
            self._timer_s = max(wakeup_s, self.now_s)
            self.after(self._timer_s - self.now_s + self._late_s, self._ring)

    def advance(self, seconds: float) -> None:
        """Let time pass: what is due meanwhile happens in its turn."""
        self.end_tick()
        until_s = self.now_s + seconds
        while self._events and self._events[0][0] <= until_s:
            self._next()
        self.now_s = until_s

    def run_out(self) -> None:
        """Let time pass until nothing is due any more."""
        self.end_tick()
        while self._events:
            self._next()

    def _next(self) -> None:
        self._n_events += 1
        if self._n_events > _MOST_EVENTS:
            raise TimeoutError(f"{self._n_events:,} events, and it does not end")
        due_s, _, function = heapq.heappop(self._events)
        self.now_s = max(self.now_s, due_s)
        function()
        self.end_tick()

    def _ring(self) -> None:
        self._timer_s = math.inf
        self._expire()


def _never() -> float | None:
    return None


def _nothing() -> None:
    return
