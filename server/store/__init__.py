"""The durable model store: versions, activation, recovery."""

from __future__ import annotations

from server.store.durable import Disk, FaultHook
from server.store.errors import (
    Conflict,
    InvalidLabel,
    InvalidName,
    ModelNotFound,
    ModelNotReady,
    NotAStore,
    QuotaExceeded,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreUnwritable,
    VersionNotFound,
    VersionNotLoaded,
)
from server.store.quotas import Quotas
from server.store.records import State, VersionRecord
from server.store.store import Store
from server.store.stored import stored_artifact

__all__ = [
    "Conflict",
    "Disk",
    "FaultHook",
    "InvalidLabel",
    "InvalidName",
    "ModelNotFound",
    "ModelNotReady",
    "NotAStore",
    "QuotaExceeded",
    "Quotas",
    "State",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreUnwritable",
    "VersionNotFound",
    "VersionNotLoaded",
    "VersionRecord",
    "stored_artifact",
]
