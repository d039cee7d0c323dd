"""Running a call that may never end.

A call of a graph can be cancelled. One that does not heed it (an op that works on) is left behind on a thread of its
own; the process that it is in (a builder) ends soon and takes it along.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["OutOfPatience", "within"]

_Result = TypeVar("_Result")


class OutOfPatience(Exception):
    """The call has not ended in time. ``works_on``: not even after it was cancelled."""

    def __init__(self, *, works_on: bool) -> None:
        super().__init__()
        self.works_on = works_on


#: Loops and ops that wait see a cancellation at once.
_HEEDING_S = 1.0


def within(
    limit_s: float, call: Callable[..., _Result], *arguments: Any, cancel: Callable[[], None] | None = None
) -> _Result:
    """Return what ``call`` returns. Errors: OutOfPatience after ``limit_s`` seconds, cancelled; what it raises."""
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised again, by who waits
            errors.append(error)

    thread = threading.Thread(target=run, name="probe", daemon=True)
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        if cancel is not None:
            cancel()
            thread.join(_HEEDING_S)
        raise OutOfPatience(works_on=thread.is_alive())
    if errors:
        raise errors[0]
    return results[0]
