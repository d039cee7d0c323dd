"""When a request is sent again.

Rules:

1. What can't have been received (the connection was refused) is sent again, whatever it was.
2. A prediction or a question, which change nothing, is also sent again when its connection broke, and when the server
   refused it for now (429, 503). What changes something is not: its caller decides.
3. The pause is what Retry-After says, or doubles from attempt to attempt; a random part keeps callers who were refused
   together from coming back together.
4. What would come after the deadline is not waited for: the caller has the error at once.
5. Retries are a tenth of the requests at most, beyond a few: where everything is refused, more of the same is no help.
   Source: retry budgets of Finagle, retryThrottling of gRPC.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any

from rowwise._steps import Pause, Send, Steps
from rowwise.errors import ConnectionFailed, NotConnected, Overloaded

__all__ = ["Retries"]

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
#: What a request puts into the budget, and what it holds at most: retries in a row after a quiet time.
_PER_REQUEST = 0.1
_BUDGET = 10.0


class Retries:
    """Sends requests, up to ``most`` more times each. One for a client, as its budget is for all of its requests."""

    def __init__(
        self,
        most: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``chance`` returns a number from 0 to 1."""
        self._most = most
        self._clock = clock
        self._chance = chance
        self._lock = Lock()
        #: How many retries may be made now.
        self._budget = _BUDGET

    def send(self, request: Send, *, timeout_s: float) -> Steps[Any]:
        """Send a request until it is answered, ``timeout_s`` seconds at most. Errors: those of its last attempt."""
        deadline_s = self._clock() + timeout_s
        with self._lock:
            self._budget = min(_BUDGET, self._budget + _PER_REQUEST)
        attempt = 0
        left_s = timeout_s
        while True:
            try:
                return (yield replace(request, timeout_s=left_s))
            except (ConnectionFailed, Overloaded) as error:
                pause_s = self._pause_s(error, attempt)
                is_late = not request.is_long and self._clock() + pause_s >= deadline_s
                if is_late or not self._is_worth_it(request, error, attempt) or not self._take():
                    raise
            attempt += 1
            yield Pause(pause_s)
            if not request.is_long:
                left_s = max(deadline_s - self._clock(), 1e-3)

    def _is_worth_it(self, request: Send, error: Exception, attempt: int) -> bool:
        return attempt < self._most and (request.repeats or isinstance(error, NotConnected))

    def _pause_s(self, error: Exception, attempt: int) -> float:
        backoff_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * float(2**attempt))
        least_s = error.retry_after_s if isinstance(error, Overloaded) else None
        # Who was told when to come comes not before, and not at once with all others who were.
        return backoff_s * (0.5 + self._chance() / 2) if least_s is None else least_s + backoff_s * self._chance()

    def _take(self) -> bool:
        with self._lock:
            if self._budget < 1:
                return False
            self._budget -= 1
            return True
