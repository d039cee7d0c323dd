"""Running calls that may never end.

A call of a graph can be cancelled. One that does not heed it (an op that works on) is left behind on its thread; the
process that it is in (a builder) ends soon and takes it along. Calls run on one thread after another call, as long as
they end: TensorFlow sets up a state for each thread, which takes longer than a small graph (2.4 ms a call on threads of
their own, 0.7 ms on one that is kept).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

__all__ = ["OutOfPatience", "Patience"]

_Result = TypeVar("_Result")
_Call = tuple[Callable[..., Any], tuple[Any, ...], "Future[Any]"]


class OutOfPatience(Exception):
    """The call has not ended in time. ``works_on``: not even after it was cancelled."""

    def __init__(self, *, works_on: bool) -> None:
        super().__init__()
        self.works_on = works_on


#: Loops and ops that wait see a cancellation at once.
_HEEDING_S = 1.0


class Patience:
    """Runs calls one by one on a thread of its own, with a new one after a call that was left behind on it.

    A context manager: its end ends the thread.
    """

    def __init__(self) -> None:
        #: What the thread takes its calls from; None ends it. There is no thread without it.
        self._calls: SimpleQueue[_Call | None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def within(
        self,
        limit_s: float,
        call: Callable[..., _Result],
        *arguments: Any,
        cancel: Callable[[], None] | None = None,
    ) -> _Result:
        """Return what ``call`` returns. Errors: OutOfPatience after ``limit_s`` seconds, cancelled; what it raises."""
        if self._calls is None:
            self._calls = SimpleQueue()
            threading.Thread(target=_work, args=(self._calls,), name="probe", daemon=True).start()
        done: Future[_Result] = Future()
        self._calls.put((call, arguments, done))
        if not _has_ended(done, limit_s):
            if cancel is not None:
                cancel()
                _has_ended(done, _HEEDING_S)
            works_on = not done.done()
            if works_on:
                self._end()
            raise OutOfPatience(works_on=works_on)
        return done.result()

    def _end(self) -> None:
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while (given := calls.get()) is not None:
        call, arguments, done = given
        try:
            done.set_result(call(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised again, by who waits
            done.set_exception(error)
        del given, call, arguments, done  # no call keeps the last one's tensors alive while it waits


def _has_ended(done: Future[Any], limit_s: float) -> bool:
    try:
        done.exception(limit_s)
    except TimeoutError:
        return False
    return True
