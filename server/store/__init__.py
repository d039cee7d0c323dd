"""The durable model store: versions, activation, recovery."""

from __future__ import annotations

from server.store.durable import Disk, FaultHook
from server.store.errors import (
    Conflict,
    InvalidName,
    ModelNotFound,
    ModelNotReady,
    NotAStore,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreUnwritable,
    VersionNotFound,
    VersionNotLoaded,
)
from server.store.records import State, VersionRecord
from server.store.store import Store
from server.store.stored import stored_artifact

__all__ = [
    "Conflict",
    "Disk",
    "FaultHook",
    "InvalidName",
    "ModelNotFound",
    "ModelNotReady",
    "NotAStore",
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
