"""Who is back: what a connection was answered, and has not asked again for."""

from __future__ import annotations

from server.batching import Returning

__all__ = ["Comeback"]


class Comeback:
    """Tells a model's ``Returning`` that the callers of one connection have asked again, or are gone.

    One request is taken for the next of whoever was answered last: a caller asks again, and on a connection that many
    share one of them does.
    """

    __slots__ = ("_answered",)

    def __init__(self) -> None:
        self._answered: list[tuple[Returning, int]] = []

    def answered(self, returning: Returning, n_rows: int) -> None:
        """Note an answer of so many rows."""
        self._answered.append((returning, n_rows))

    def came(self) -> None:
        """Note a request."""
        if self._answered:
            returning, n_rows = self._answered.pop()
            returning.came(n_rows)

    def gone(self) -> None:
        """Note that nobody comes any more."""
        while self._answered:
            self.came()
