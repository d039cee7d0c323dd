"""A model store in a bucket, which several servers share and follow."""

from __future__ import annotations

from server.shared_store.bucket import Bucket, open_bucket
from server.shared_store.importing import import_into_bucket
from server.shared_store.looking import BucketView
from server.shared_store.shared import SharedStore
from server.shared_store.sweeping import sweep_bucket

__all__ = ["Bucket", "BucketView", "SharedStore", "import_into_bucket", "open_bucket", "sweep_bucket"]
