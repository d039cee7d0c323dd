"""Connections as a stack of transports, each with one connection: the last used is the next, found without looking.

A pool of httpx looks at each of its connections whenever a request begins or ends, which at 32 connections costs more
than the request itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Stack"]

_Transport = TypeVar("_Transport")


class Stack(Generic[_Transport]):
    """Transports that nobody uses. Both ends may be called by several threads; how many there are its callers bound."""

    def __init__(self, make: Callable[[], _Transport]) -> None:
        self._make = make
        self._free: deque[_Transport] = deque()

    def take(self) -> _Transport:
        """Return one for one request; a new one if all are in use."""
        try:
            return self._free.pop()
        except IndexError:
            return self._make()

    def give_back(self, transport: _Transport) -> None:
        """Let others use it."""
        self._free.append(transport)

    def all_free(self) -> list[_Transport]:
        """Take all that nobody uses."""
        found: list[_Transport] = []
        while self._free:
            found.append(self.take())
        return found
