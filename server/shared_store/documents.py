"""The documents of a bucket, one for each model, as they were last read; and how one is changed beside others."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from server.shared_store.bucket import Bucket, Changed
from server.shared_store.document import Document, VersionFacts
from server.shared_store.publishing import MODELS, object_of_model
from server.store import StoreDamaged, StoreUnwritable
from server.store.index import StoreIndex

__all__ = ["Documents", "timestamp"]

_T = TypeVar("_T")

#: Attempts at replacing a document that others replace too. Fifty servers that all write get through in about ten.
_MOST_TRIES = 60


class Documents(StoreIndex):
    """The models as their documents say. ``saved`` is a directory for what was read last, and this server's name."""

    def __init__(self, bucket: Bucket, *, saved: Path) -> None:
        super().__init__({})
        self._bucket = bucket
        self._saved = saved
        self._saved.mkdir(exist_ok=True)
        #: Held by whoever changes what is known.
        self._writing = threading.RLock()
        self._tags: dict[str, str] = {}
        self._facts: dict[str, dict[int, VersionFacts]] = {}
        #: By which others know this server; the same after a restart.
        self.server_id = self._read_id()

    def _read_again(self) -> set[str]:
        """Read the documents that have changed, and return their models."""
        changed = set()
        for listed in self._bucket.list(MODELS):
            name = listed.name.removeprefix(MODELS).removesuffix(".json")
            if self._tags.get(name) == listed.tag:
                continue
            # Under the lock, so that what this server writes meanwhile is not taken for older than what was read.
            with self._writing:
                found = self._bucket.read(listed.name)
                if found is not None and self._tags.get(name) != found[1]:
                    self._take(name, Document.from_bytes(name, found[0], shown=listed.name), found[1])
                    changed.add(name)
        return changed

    def _change(self, name: str, change: Callable[[Document], _T]) -> _T:
        """Replace a model's document by what ``change`` makes of it, however often others come first."""
        path = object_of_model(name)
        with self._writing:
            for n_tried in range(_MOST_TRIES):
                found = self._bucket.read(path)
                document = Document() if found is None else Document.from_bytes(name, found[0], shown=path)
                result = change(document)
                data = document.to_bytes()
                try:
                    if found is None:
                        tag = self._bucket.create(path, data)
                    elif found[0] == data:
                        tag = found[1]
                    else:
                        tag = self._bucket.replace(path, data, tag=found[1])
                except Changed:
                    time.sleep(random.random() * min(0.02 * 2**n_tried, 1.0))  # noqa: S311 - to keep writers apart
                    continue
                self._take(name, document, tag)
                return result
        raise StoreUnwritable(f"{path!r} in the bucket is changed by others all the time: try again")

    def _take(self, name: str, document: Document, tag: str) -> None:
        self._models = {**self._models, name: document.index}
        self._facts[name], self._tags[name] = document.facts, tag
        with suppress(OSError):
            new = self._saved / f".new-{name}"
            new.write_bytes(document.to_bytes())
            new.replace(self._saved / f"{name}.json")

    def _read_saved(self) -> None:
        """Know what was known when the server was stopped, for a start without the bucket."""
        for path in sorted(self._saved.glob("[!.]*.json")):
            with suppress(OSError, StoreDamaged):
                document = Document.from_bytes(path.stem, path.read_bytes(), shown=str(path))
                self._models[path.stem], self._facts[path.stem] = document.index, document.facts

    def _read_id(self) -> str:
        path = self._saved / ".server-id"
        with suppress(OSError):
            if text := path.read_text().strip():
                return text
        new = f"{os.uname().nodename[:60]}-{uuid4().hex}"
        path.write_text(new)
        return new


def timestamp() -> str:
    """Return the time as documents have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
