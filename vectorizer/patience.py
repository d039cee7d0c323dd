"""Running a call that may never end.

TensorFlow can't be interrupted from outside. A call that takes too long is left behind on a thread of its own; the
process that it is in (a builder) ends soon and takes it along.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["OutOfPatience", "within"]

_Result = TypeVar("_Result")


class OutOfPatience(Exception):
    """The call has not ended in time."""


def within(limit_s: float, call: Callable[..., _Result], *arguments: Any) -> _Result:
    """Return what ``call`` returns. Errors: OutOfPatience after ``limit_s`` seconds; what it raises."""
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
        raise OutOfPatience
    if errors:
        raise errors[0]
    return results[0]
