"""A bucket of an S3-compatible object store, as far as a shared model store needs one.

Two operations carry everything: writing an object that must not be there yet, and replacing one that must not have
changed since it was read (``If-None-Match`` and ``If-Match`` of S3's PutObject). Of two writers one is told that it
came second. Names are relative to the prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import ObjectStore, S3Store

from server.store import StoreUnreachable

__all__ = ["Bucket", "Changed", "Listed", "open_bucket"]

_CHUNK_BYTES = 8 * 2**20
#: Larger objects go up in parts of this size, several at once.
_PART_BYTES = 16 * 2**20


class Changed(Exception):
    """The object is not what it was when it was read, or is there already."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One object. ``modified_at`` is by the bucket's clock."""

    name: str
    n_bytes: int
    tag: str
    modified_at: datetime


class Bucket:
    """Objects by their names. Everything blocks: call it from a thread. Errors: StoreUnreachable, from all methods."""

    def __init__(self, store: ObjectStore, *, shown: str) -> None:
        self._store = store
        self.shown = shown

    def read(self, name: str) -> tuple[bytes, str] | None:
        """Return an object with its tag; None where there is none."""
        with self._reaching():
            try:
                found = obstore.get(self._store, name)
                return bytes(found.bytes()), _tag(found.meta)
            except FileNotFoundError:
                return None

    def create(self, name: str, data: bytes) -> str:
        """Write an object that is not there, and return its tag. Errors: Changed if it is there."""
        with self._reaching():
            try:
                return _tag(obstore.put(self._store, name, data, mode="create", use_multipart=False))
            except AlreadyExistsError as error:
                raise Changed(name) from error

    def replace(self, name: str, data: bytes, *, tag: str) -> str:
        """Write an object that is as it was read, and return its new tag. Errors: Changed if it is not."""
        with self._reaching():
            try:
                return _tag(obstore.put(self._store, name, data, mode={"e_tag": tag}, use_multipart=False))
            except (PreconditionError, FileNotFoundError) as error:
                raise Changed(name) from error

    def write(self, name: str, data: bytes) -> None:
        """Write an object, whatever was there."""
        with self._reaching():
            obstore.put(self._store, name, data, use_multipart=False)

    def upload(self, name: str, path: Path) -> None:
        """Write a file's contents: in parts, which become the object at one moment."""
        with self._reaching(), path.open("rb") as file:
            obstore.put(self._store, name, file, chunk_size=_PART_BYTES)

    def download(self, name: str) -> Iterator[bytes] | None:
        """Return an object in pieces; None where there is none."""
        with self._reaching():
            try:
                found = obstore.get(self._store, name)
            except FileNotFoundError:
                return None
        return self._pieces(found)

    def _pieces(self, found: Any) -> Iterator[bytes]:
        with self._reaching():
            for piece in found.stream(min_chunk_size=_CHUNK_BYTES):
                yield bytes(piece)

    def stat(self, name: str) -> Listed | None:
        """Return what is known of an object without reading it; None where there is none."""
        with self._reaching():
            try:
                return _listed(obstore.head(self._store, name))
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[Listed]:
        """Return the objects whose names begin with ``prefix``, which ends with a slash."""
        with self._reaching():
            return [_listed(meta) for page in obstore.list(self._store, prefix=prefix) for meta in page]

    def delete(self, name: str) -> None:
        """Delete an object; nothing happens where there is none."""
        with self._reaching(), suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            # The first line says it; what follows is the library's own state.
            told = (str(error).splitlines() or [type(error).__name__])[0][:300]
            raise StoreUnreachable(f"{self.shown} can't be reached: {told}") from error


def open_bucket(url: str, *, timeout_s: float = 30.0, n_retries: int = 2) -> Bucket:
    """Return the bucket at ``s3://bucket/prefix``. Endpoint, region and credentials are the usual AWS_... variables.

    Errors: ValueError for another URL.
    """
    if not url.startswith("s3://") or not url.removeprefix("s3://").strip("/"):
        raise ValueError(f"{url!r} is no bucket: expected s3://BUCKET/PREFIX")
    store = S3Store.from_url(
        url.rstrip("/"),
        # An endpoint without TLS is the operator's own choice, in AWS_ENDPOINT_URL.
        client_options={
            "allow_http": True,
            "connect_timeout": timedelta(seconds=5),
            "timeout": timedelta(seconds=timeout_s),
        },
        retry_config={"max_retries": n_retries, "retry_timeout": timedelta(seconds=timeout_s)},
    )
    return Bucket(store, shown=url)


def _tag(meta: Any) -> str:
    return str(meta["e_tag"])


def _listed(meta: Any) -> Listed:
    return Listed(str(meta["path"]), int(meta["size"]), _tag(meta), meta["last_modified"])
