"""The durable model store: versions, activation, recovery."""

from __future__ import annotations

from server.store.durable import Disk, FaultHook
from server.store.errors import (
    Conflict,
    ImportRefused,
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
    StoreUnreachable,
    StoreUnwritable,
    Superseded,
    VersionNotFound,
    VersionNotLoaded,
)
from server.store.followed import FollowedStore
from server.store.interface import ModelStore
from server.store.looking import StoreView, VersionCheck
from server.store.quotas import Quotas
from server.store.records import State, VersionRecord
from server.store.store import Store
from server.store.stored import stored_artifact
from server.store.transfer import export_version, import_version

__all__ = [
    "Conflict",
    "Disk",
    "FaultHook",
    "FollowedStore",
    "ImportRefused",
    "InvalidLabel",
    "InvalidName",
    "ModelNotFound",
    "ModelNotReady",
    "ModelStore",
    "NotAStore",
    "QuotaExceeded",
    "Quotas",
    "State",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreUnreachable",
    "StoreUnwritable",
    "StoreView",
    "Superseded",
    "VersionCheck",
    "VersionNotFound",
    "VersionNotLoaded",
    "VersionRecord",
    "export_version",
    "import_version",
    "stored_artifact",
]
