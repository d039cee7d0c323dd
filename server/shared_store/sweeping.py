"""Clearing up a bucket: files that no document names, once they are old enough that nobody is about to name them.

Marked is what the documents name, read after the list was made: what is published meanwhile is either named by then, or
was uploaded (or uploaded again, see ``publishing``) within the time for which nothing is swept.
"""

from __future__ import annotations

from datetime import timedelta

from server.shared_store.bucket import Bucket
from server.shared_store.document import Document
from server.shared_store.publishing import MODELS, SWEPT_AFTER_S, object_of_blob

__all__ = ["sweep_bucket"]

_CLOCK = "servers/sweeper.json"


def sweep_bucket(bucket: Bucket, *, older_than_s: float = SWEPT_AFTER_S, dry_run: bool = False) -> tuple[int, int]:
    """Delete files that no version of any model has; return how many they were, and their bytes.

    Errors: StoreUnreachable; StoreDamaged for an object that is no document: then nothing is deleted.
    """
    # By the bucket's own clock.
    bucket.write(_CLOCK, b"{}")
    clock = bucket.stat(_CLOCK)
    blobs = bucket.list("blobs/")
    marked: set[str] = set()
    for listed in bucket.list(MODELS):
        found = bucket.read(listed.name)
        if found is not None:
            document = Document.from_bytes(listed.name, found[0], shown=listed.name)
            marked |= {object_of_blob(facts.spec) for facts in document.facts.values()}
            marked |= {
                object_of_blob(file.sha256)
                for contents in document.index.contents.values()
                for file in contents.files.values()
            }
    going = [
        blob
        for blob in blobs
        if clock is not None
        and blob.name not in marked
        and clock.modified_at - blob.modified_at >= timedelta(seconds=older_than_s)
    ]
    for blob in going:
        if not dry_run:
            bucket.delete(blob.name)
    return len(going), sum(blob.n_bytes for blob in going)
