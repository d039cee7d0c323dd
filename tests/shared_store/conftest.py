"""A bucket in memory, and servers' stores over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from server.shared_store import Bucket, SharedStore

Opening = Callable[[str], SharedStore]


@pytest.fixture
def bucket() -> Bucket:
    return Bucket(MemoryStore(), shown="memory")


@pytest.fixture
def opening(bucket: Bucket, tmp_path: Path) -> Iterator[Opening]:
    """Give what opens the store of a server by its name, and closes them all at the end."""
    opened: list[SharedStore] = []

    def opening(name: str, over: Bucket | None = None) -> SharedStore:
        opened.append(SharedStore.open(over or bucket, tmp_path / name))
        return opened[-1]

    yield opening
    for store in opened:
        store.close()
