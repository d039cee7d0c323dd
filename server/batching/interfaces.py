"""What the core asks of its surroundings."""

from __future__ import annotations

from typing import Protocol

from server.batching.items import Batch, Item

__all__ = ["Executor", "Observer"]


class Executor(Protocol):
    """Runs batches, some number of them at a time."""

    def free(self) -> int:
        """Return how many batches could start now."""

    def start(self, batch: Batch) -> None:
        """Start ``batch`` and return.

        ``Batcher.finished`` is to be called for it exactly once, on the thread that drives the batcher; that
        may happen before ``start`` returns. Raising instead means that nothing was started: the batch fails.
        """


class Observer(Protocol):
    """Is told what happened, for metrics and traces. What it raises is logged and goes no further.

    Calls come on the thread that drives the batcher, for each batch and not for each row: keep them short, and
    don't call the batcher from them.
    """

    def dispatched(self, batch: Batch) -> None:
        """A batch is about to start."""

    def finished(self, batch: Batch, error: BaseException | None) -> None:
        """A batch has ended; ``batch.spans`` still says whose rows it held, their items are told next."""

    def dropped(self, item: Item) -> None:
        """An admitted item ended before all of its rows ran: ``item.error`` says why."""
