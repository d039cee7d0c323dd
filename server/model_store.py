"""Which store the settings mean, opened."""

from __future__ import annotations

from server.settings import Settings
from server.store import Quotas, Store

__all__ = ["open_store", "quotas_of"]


def open_store(settings: Settings) -> Store:
    """Open it. Errors: those of ``Store.open``."""
    return Store.open(settings.store, quotas=quotas_of(settings), verify=settings.verify_store)


def quotas_of(settings: Settings) -> Quotas:
    """Return how much the store may hold."""
    return Quotas(
        max_versions=settings.max_versions,
        max_model_bytes=settings.max_model_bytes,
        max_store_bytes=settings.max_store_bytes,
    )
