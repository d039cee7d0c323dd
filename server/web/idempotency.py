"""Registrations that may be sent again: one key, one content, one version.

Theory of operation. A caller that lost the answer can't know whether its registration arrived. With an
``Idempotency-Key`` it sends the same again and gets the version that the first one made, in whatever state it is by
now. Hashes of the key and of the content stay with the version, so this holds over restarts, for as long as the version
is there. The same key with another content is a fault of the caller's and is said to be one.

Source: draft-ietf-httpapi-idempotency-key-header.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from server.build.source import Source
from server.spec import ModelSpec
from server.store.errors import ModelNotFound
from server.store.records import VersionRecord
from server.web.errors import BadHeader, IdempotencyKeyInUse, IdempotencyKeyReused
from server.web.interfaces import Catalog

__all__ = ["Repeats", "content_hash", "read_key"]

_MAX_KEY_CHARS = 255
#: Where a file lies and what the caller calls it says nothing of what is in it.
_NO_CONTENT = ("path", "filename")


def read_key(header: str | None) -> str | None:
    """Return the hash of an ``Idempotency-Key``, in quotes or without; None without a header. Errors: BadHeader."""
    if header is None:
        return None
    key = header.strip().removeprefix('"').removesuffix('"')
    if not 0 < len(key) <= _MAX_KEY_CHARS or not (key.isascii() and key.isprintable()):
        raise BadHeader(f"Idempotency-Key must have 1 to {_MAX_KEY_CHARS} printable ASCII characters, such as a UUID")
    return hashlib.sha256(key.encode()).hexdigest()


def content_hash(spec: ModelSpec, source: Source, file_sha256: str) -> str:
    """Return the hash of all that a registration says."""
    said: dict[str, Any] = {name: value for name, value in source.to_json().items() if name not in _NO_CONTENT}
    content = [spec.model_dump(mode="json", exclude_unset=True), said, file_sha256]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class Repeats:
    """The keys that are being registered under, and the versions that were."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        #: (model, key) of registrations that have not made a version yet.
        self._under_way: set[tuple[str, str]] = set()

    @contextmanager
    def claimed(self, model: str, key: str) -> Iterator[None]:
        """Let nobody else register under the key meanwhile. Errors: IdempotencyKeyInUse."""
        if (model, key) in self._under_way:
            raise IdempotencyKeyInUse
        self._under_way.add((model, key))
        try:
            yield
        finally:
            self._under_way.discard((model, key))

    def earlier(self, model: str, key: str) -> VersionRecord | None:
        """Return the version that was registered under a key."""
        try:
            versions = self._catalog.versions(model)
        except ModelNotFound:
            return None
        return next((record for record in reversed(versions) if record.intake.key == key), None)

    def same(self, model: str, key: str, content: str) -> VersionRecord | None:
        """Return the version that the same registration made, if it has. Errors: IdempotencyKeyReused."""
        record = self.earlier(model, key)
        if record is not None and record.intake.content != content:
            raise IdempotencyKeyReused(record.version)
        return record
