"""What a format keeps for each signature: made at its first use, found by the identity of the signature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from server.signature import ModelSignature

__all__ = ["BySignature"]

_T = TypeVar("_T")

#: Kept at most; the oldest goes. A codec costs about 20 KiB and 200 us to make.
_MAX_KEPT = 256


class BySignature(Generic[_T]):
    """Values by signature. What ``make`` returns must hold its signature, so that no identity is ever used twice."""

    __slots__ = ("_kept", "_make")

    def __init__(self, make: Callable[[ModelSignature], _T]) -> None:
        self._make = make
        self._kept: dict[int, _T] = {}

    def of(self, signature: ModelSignature) -> _T:
        """Return the value of a signature."""
        found = self._kept.get(id(signature))
        if found is None:
            if len(self._kept) >= _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            found = self._kept[id(signature)] = self._make(signature)
        return found
