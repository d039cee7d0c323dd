"""Clearing up a bucket takes what nobody has, and nothing that somebody is about to have."""

from __future__ import annotations

from server.shared_store import Bucket, sweep_bucket
from tests.shared_store.conftest import Opening
from tests.store.operations import SPEC, fill


def test_what_no_version_has_is_swept_when_it_is_old(opening: Opening, bucket: Bucket) -> None:
    one, two = opening("one"), opening("two")
    for text in ("1", "2"):
        version = one.create_version("a", SPEC, source={"kind": "import"}).version
        fill(one.staging_dir("a", version), text)
        one.commit("a", version)
    before = {listed.name for listed in bucket.list("blobs/")}
    assert sweep_bucket(bucket, older_than_s=0.0) == (0, 0)
    one.delete("a", 1)
    assert sweep_bucket(bucket) == (0, 0), "somebody may be about to name them"
    n_files, n_bytes = sweep_bucket(bucket, older_than_s=0.0, dry_run=True)
    assert {listed.name for listed in bucket.list("blobs/")} == before
    assert sweep_bucket(bucket, older_than_s=0.0) == (n_files, n_bytes)
    assert n_files == 3, "all but what version 2 has too: the tokens, and the options"
    assert n_bytes > 0
    two.refresh()
    two.fetch("a", 2)
    one.delete("a")
    sweep_bucket(bucket, older_than_s=0.0)
    assert bucket.list("blobs/") == []
