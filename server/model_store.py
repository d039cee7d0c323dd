"""Which store the settings mean, opened."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, Self

from server.settings import Settings
from server.store import FollowedStore, ModelStore, Quotas, Store

__all__ = ["OpenStore", "executables_dir", "open_store", "quotas_of"]


class OpenStore(ModelStore, AbstractContextManager["OpenStore"], Protocol):
    """A store until the block ends."""

    def __enter__(self) -> Self:
        """Give it."""

    def close(self) -> None:
        """Let others have it."""


def open_store(settings: Settings) -> OpenStore:
    """Open it. Errors: those of ``Store.open``; ValueError for a bucket that can't be used here."""
    quotas = quotas_of(settings)
    if settings.follow_store:
        if settings.bucket is not None:
            raise ValueError(
                "follow_store is for a store in a directory: one in a bucket is followed by all who have it"
            )
        return FollowedStore(settings.store, quotas=quotas)
    if settings.bucket is None:
        return Store.open(settings.store, quotas=quotas, verify=settings.verify_store)
    try:
        # Late: most servers have no bucket, and need no package for one.
        from server.shared_store import SharedStore, open_bucket
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{settings.bucket} needs the package {error.name!r}, which is not installed: pip install 'rowwise[s3]'"
        ) from error

    bucket = open_bucket(settings.bucket)
    return SharedStore.open(bucket, settings.store, quotas=quotas, verify=settings.verify_store)


def executables_dir(settings: Settings, store: ModelStore) -> Path:
    """Return where XLA may keep what it compiles: beside the models, unless these are another server's."""
    return (store.upload_dir() if settings.follow_store else settings.store) / "xla-cache"


def quotas_of(settings: Settings) -> Quotas:
    """Return how much the store may hold."""
    return Quotas(
        max_versions=settings.max_versions,
        max_model_bytes=settings.max_model_bytes,
        max_store_bytes=settings.max_store_bytes,
    )
