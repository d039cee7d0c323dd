"""Observers that can't harm the batcher."""

from __future__ import annotations

import logging

from server.batching.interfaces import Observer
from server.batching.items import Batch, Item

__all__ = ["GuardedObserver", "NullObserver", "Observers"]

_log = logging.getLogger(__name__)


class NullObserver:
    """Looks away."""

    def dispatched(self, batch: Batch) -> None:
        """Do nothing."""

    def finished(self, batch: Batch, error: BaseException | None) -> None:
        """Do nothing."""

    def dropped(self, item: Item) -> None:
        """Do nothing."""


class GuardedObserver:
    """Passes calls on to another observer, and logs what that raises instead of letting it through."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def dispatched(self, batch: Batch) -> None:
        """Pass on."""
        try:
            self._observer.dispatched(batch)
        except Exception:  # noqa: BLE001 - metrics must not stop the batcher
            _log.exception("an observer failed on the dispatch of batch %d", batch.id)

    def finished(self, batch: Batch, error: BaseException | None) -> None:
        """Pass on."""
        try:
            self._observer.finished(batch, error)
        except Exception:  # noqa: BLE001 - metrics must not stop the batcher
            _log.exception("an observer failed on the end of batch %d", batch.id)

    def dropped(self, item: Item) -> None:
        """Pass on."""
        try:
            self._observer.dropped(item)
        except Exception:  # noqa: BLE001 - metrics must not stop the batcher
            _log.exception("an observer failed on an item that was dropped")


class Observers:
    """Tells several observers; what one raises keeps the others from nothing."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = tuple(GuardedObserver(observer) for observer in observers)

    def dispatched(self, batch: Batch) -> None:
        """Tell each."""
        for observer in self._observers:
            observer.dispatched(batch)

    def finished(self, batch: Batch, error: BaseException | None) -> None:
        """Tell each."""
        for observer in self._observers:
            observer.finished(batch, error)

    def dropped(self, item: Item) -> None:
        """Tell each."""
        for observer in self._observers:
            observer.dropped(item)
