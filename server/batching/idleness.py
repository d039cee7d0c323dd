"""Telling those who wait until something has nothing left to do."""

from __future__ import annotations

import logging
from collections.abc import Callable

__all__ = ["Idleness"]

_log = logging.getLogger(__name__)


class Idleness:
    """A context that calls may be nested in, and conditions that are looked at when the outermost call ends.

    A call that is about to answer items has changed the state already. Looking only when the outermost one ends
    makes sure that "idle" also means "answered".
    """

    __slots__ = ("_depth", "_watches")

    def __init__(self) -> None:
        self._depth = 0
        self._watches: list[tuple[Callable[[], bool], Callable[[], None]]] = []

    def watch(self, is_idle: Callable[[], bool], callback: Callable[[], None]) -> None:
        """Call ``callback`` once, at the end of the first outermost call that leaves ``is_idle()`` true."""
        self._watches.append((is_idle, callback))

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._watches and not self._depth:
            self._report()

    def _report(self) -> None:
        watches, self._watches = self._watches, []
        ready = []
        for is_idle, callback in watches:
            if is_idle():
                ready.append(callback)
            else:
                self._watches.append((is_idle, callback))
        for callback in ready:
            try:
                callback()
            except Exception:  # noqa: BLE001 - the others still have to be told
                _log.exception("a callback on idleness failed")
