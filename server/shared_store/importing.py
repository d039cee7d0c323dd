"""A version that comes out of a file into a bucket: compared in a directory of its own first, then published.

Its servers may be running: they take it up like one that another server has built.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from server.shared_store.bucket import Bucket
from server.shared_store.document import Document, VersionFacts
from server.shared_store.documents import Documents, timestamp
from server.shared_store.publishing import Publishing
from server.store import Store, VersionRecord, import_version
from server.store.contents import Contents

__all__ = ["import_into_bucket"]

#: By what name the versions belong to nobody's directory, and signs of life are left.
_IMPORTER = "import"


def import_into_bucket(
    bucket: Bucket, source: Path, *, name: str | None = None, activate: bool = False
) -> VersionRecord:
    """Add the version that a file holds, under the next number of its model, or of ``name``.

    Errors: ImportRefused where the file is not what it says; InvalidName; StoreUnreachable; StoreUnwritable.
    """
    with tempfile.TemporaryDirectory(prefix="rowwise-import-") as directory:
        with Store.open(Path(directory) / "store") as here:
            record = import_version(here, source, name=name)
            contents = here.contents(record.model, record.version)
            assert contents is not None, "it was imported by this release"
            publishing = Publishing(bucket, here)
            # Else files that are about to be swept would be taken for being there.
            publishing.say_alive(_IMPORTER)
            spec = publishing.upload(record.model, record.version, contents)
        documents = _Imported(bucket, saved=Path(directory) / "documents")
        return documents.add(record, contents, spec, activate=activate)


class _Imported(Documents):
    """The one document that an import changes."""

    def add(self, record: VersionRecord, contents: Contents, spec: str, *, activate: bool) -> VersionRecord:
        def add(document: Document) -> int:
            index = document.index
            index.last = number = index.last + 1
            index.versions[number] = replace(record, version=number, active=False)
            index.contents[number] = contents
            document.facts[number] = VersionFacts(_IMPORTER, spec=spec)
            if activate:
                document.activate(number, at=timestamp(), by=_IMPORTER)
            return number

        return self.record(record.model, self._change(record.model, add))
