"""A request under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from server.batching import Batcher, Item
from server.errors import RowwiseError
from server.serving_answer import Answer
from server.statistics import EntryStatistics

__all__ = ["Ticket"]


class Answering(Protocol):
    """Who puts answers together."""

    @property
    def statistics(self) -> EntryStatistics:
        """How requests ended."""

    def answer(self, items: Sequence[Item], places: Sequence[Sequence[int]] | None) -> Answer:
        """Put the parts of a request's finished items together."""


class Ticket:
    """A request under way: one item for each group that its rows fall into.

    ``places`` says which rows of the request each item holds; None if one item holds them all.
    """

    __slots__ = ("_batcher", "_items", "_model", "_n_open", "_on_done", "_places")

    def __init__(self, model: Answering, batcher: Batcher, on_done: Callable[[Answer], None]) -> None:
        self._model = model
        self._batcher = batcher
        self._on_done = on_done
        self._places: list[list[int]] | None = None
        self._items: Sequence[Item] = ()
        #: Items that are not done. ``on_done`` is called when it gets to 0.
        self._n_open = 0

    def submit(self, items: Sequence[Item], places: list[list[int]] | None) -> None:
        """Queue all items or none. Errors: what ``Batcher.submit`` raises; ``on_done`` is then not called."""
        self._items = items
        self._places = places
        self._n_open = len(items)
        submit = self._batcher.submit
        for number, item in enumerate(items):
            try:
                submit(item)
            except RowwiseError:
                # Nothing of it has run: batches are formed at the end of the tick.
                self._on_done = _nobody
                for queued in items[:number]:
                    self._batcher.cancel(queued)
                self._model.statistics.failed(0.0)
                raise

    def cancel(self) -> bool:
        """Take back what no batch has taken. True if anything was: then ``on_done`` is called with Cancelled."""
        taken_back = False
        for item in self._items:
            taken_back |= self._batcher.cancel(item)
        return taken_back

    def item_done(self, _item: Item) -> None:
        """Note that an item has ended, however it did: the core's ``on_done``."""
        self._n_open -= 1
        if not self._n_open:
            self._on_done(self._model.answer(self._items, self._places))


def _nobody(answer: Answer) -> None:
    """Takes the end of items of a request that was refused: its caller has the refusal already."""
