"""What is open from its making on, and closed at the end of a ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Closing"]


class Closing(ABC):
    """Closed when the block is left, whether by an error or not."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds of this machine. Nothing is lost without it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
