"""A bucket that servers share, as it lies there: read without a directory, and without changing anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from server.shared_store.bucket import Bucket
from server.shared_store.document import Document, VersionFacts
from server.shared_store.publishing import MODELS, object_of_blob
from server.store import NotAStore, State, StoreDamaged, VersionCheck, VersionRecord
from server.store.contents import Contents, FileDigest
from server.store.index import StoreIndex

__all__ = ["BucketView"]


class BucketView(StoreIndex):
    """Models and versions as they were when it was made. ``damage``: a sentence for each document that can't be read.

    Errors: NotAStore where there is no model; StoreUnreachable, from all methods.
    """

    def __init__(self, bucket: Bucket) -> None:
        super().__init__({})
        self._bucket = bucket
        self._facts: dict[str, dict[int, VersionFacts]] = {}
        damage = []
        for listed in bucket.list(MODELS):
            name = listed.name.removeprefix(MODELS).removesuffix(".json")
            found = bucket.read(listed.name)
            if found is None:
                continue
            try:
                document = Document.from_bytes(name, found[0], shown=listed.name)
            except StoreDamaged as error:
                damage.append(str(error))
                continue
            self._models[name], self._facts[name] = document.index, document.facts
        if not self._models and not damage:
            raise NotAStore(f"{bucket.shown!r} is no store, or an empty one: it has nothing below {MODELS!r}")
        self.damage = tuple(damage)

    def files(self, name: str, version: int) -> Contents:
        """Return the files of a built version. Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built."""
        contents = self.contents(name, version)
        if contents is None:
            raise StoreDamaged(f"{MODELS}{name}.json", f"version {version} is built and has no files")
        return contents

    def spec(self, name: str, version: int) -> dict[str, Any]:
        """Read the registration's options. Errors: also StoreDamaged."""
        self.files(name, version)
        sha256 = self._facts[name][version].spec
        data = b"".join(self._blob(sha256))
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StoreDamaged(object_of_blob(sha256), "it does not hold the options that it is named by")
        read: dict[str, Any] = json.loads(data)
        return read

    def pieces(self, name: str, version: int, path: str) -> Iterator[bytes]:
        """Read one of a version's files. Errors: also StoreDamaged if it is missing."""
        return self._blob(self.files(name, version).files[path].sha256)

    def checks(self, *, read: bool, only: str | None = None) -> list[VersionCheck]:
        """Return what there is of every version, of all models or one; ``read``: read every file, each once.

        Errors: ModelNotFound for ``only``.
        """
        records = [record for name in (self.models() if only is None else [only]) for record in self.versions(name)]
        sizes = {listed.name: listed.n_bytes for listed in self._bucket.list("blobs/")}
        faults: dict[str, str] = {}
        return [self._check(record, sizes, faults, read=read) for record in records]

    def _check(
        self, record: VersionRecord, sizes: dict[str, int], faults: dict[str, str], *, read: bool
    ) -> VersionCheck:
        if record.state is not State.BUILT:
            return VersionCheck(record, None, ())
        try:
            contents = self.files(record.model, record.version)
        except StoreDamaged as error:
            return VersionCheck(record, None, (str(error),))
        options = FileDigest(self._facts[record.model][record.version].spec, -1)
        found = []
        for shown, file in (*contents.files.items(), ("its options", options)):
            fault = self._fault(file, sizes, faults, read=read)
            if fault:
                found.append(f"{shown!r} {fault}")
        return VersionCheck(record, contents, tuple(found))

    def _fault(self, file: FileDigest, sizes: dict[str, int], faults: dict[str, str], *, read: bool) -> str:
        """Return what is wrong with a blob, or nothing. ``faults`` are those of the blobs that were read already."""
        n_bytes = sizes.get(object_of_blob(file.sha256))
        if n_bytes is None:
            return "is missing in the bucket"
        if file.n_bytes not in {-1, n_bytes}:
            return f"has {n_bytes} bytes, expected {file.n_bytes}"
        if not read:
            return ""
        if file.sha256 not in faults:
            digest = hashlib.sha256()
            for piece in self._blob(file.sha256):
                digest.update(piece)
            is_sound = digest.hexdigest() == file.sha256
            faults[file.sha256] = "" if is_sound else f"has the SHA-256 {digest.hexdigest()}, expected {file.sha256}"
        return faults[file.sha256]

    def _blob(self, sha256: str) -> Iterator[bytes]:
        pieces = self._bucket.download(object_of_blob(sha256))
        if pieces is None:
            raise StoreDamaged(object_of_blob(sha256), "it is missing in the bucket")
        return pieces
