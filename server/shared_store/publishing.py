"""Artifacts between a server's directory and the bucket: file by file, each once, each compared with its SHA-256."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path

from server.shared_store.bucket import Bucket, Changed
from server.store import Store, StoreDamaged, VersionRecord
from server.store.contents import Contents, FileDigest
from server.store.errors import unwritable

__all__ = ["MODELS", "SWEPT_AFTER_S", "Publishing", "object_of_blob", "object_of_model"]

_log = logging.getLogger(__name__)

#: A blob that no document names stays for so long, seconds: whoever publishes relies on what is there already, and has
#: half of that time to say so, for what is older is uploaded again.
SWEPT_AFTER_S = 24 * 3600.0
#: Seconds between signs of life.
_BEAT_S = 20.0


#: Where the objects are that say all of a model.
MODELS = "models/"


def object_of_model(name: str) -> str:
    """Return the object that says all of a model."""
    return f"{MODELS}{name}.json"


def object_of_blob(sha256: str) -> str:
    """Return the object that holds a file."""
    return f"blobs/{sha256}"


class Publishing:
    """Uploads and fetches artifacts. ``fetching`` is held by whoever fetches: a file is fetched once."""

    def __init__(self, bucket: Bucket, directory: Store) -> None:
        self._bucket = bucket
        self._here = directory
        self.fetching = threading.Lock()
        #: The bucket's time at this server's last sign of life, and that moment by the monotonic clock.
        self._beat: tuple[datetime, float] | None = None

    def upload(self, name: str, version: int, contents: Contents) -> str:
        """Upload what is not there of an artifact and its options; return the SHA-256 of these."""
        artifact = self._here.artifact_dir(name, version)
        for path, digest in contents.files.items():
            if not self._is_there(digest.sha256):
                self._bucket.upload(object_of_blob(digest.sha256), artifact / path)
        spec = json.dumps(self._here.spec(name, version), sort_keys=True).encode()
        sha256 = hashlib.sha256(spec).hexdigest()
        if not self._is_there(sha256):
            self._bucket.write(object_of_blob(sha256), spec)
        return sha256

    def fetch(self, record: VersionRecord, contents: Contents, spec_sha256: str) -> None:
        """Bring a version into the directory. Errors: StoreDamaged if the bucket holds something else."""
        scratch = self._here.scratch_dir()
        try:
            artifact = scratch / "artifact"
            for path, digest in contents.files.items():
                target = artifact / path
                target.parent.mkdir(parents=True, exist_ok=True)
                if not self._here.link_blob(digest, target):
                    self._download(digest, target)
            spec = scratch / "spec"
            self._download(FileDigest(spec_sha256, -1), spec)
            self._here.add(
                record.model,
                json.loads(spec.read_bytes()),
                artifact,
                created_at=record.created_at,
                expected=contents,
                number=record.version,
                is_ours=True,
            )
        except OSError as error:
            raise unwritable(repr(str(scratch)), error) from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        _log.info("model %r: version %d was fetched, %d bytes", record.model, record.version, contents.n_bytes)

    def _download(self, expected: FileDigest, target: Path) -> None:
        name = object_of_blob(expected.sha256)
        pieces = self._bucket.download(name)
        if pieces is None:
            raise StoreDamaged(name, "it is missing in the bucket")
        digest = hashlib.sha256()
        with target.open("xb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != expected.sha256:
            raise StoreDamaged(name, f"it has the SHA-256 {digest.hexdigest()}")

    def _is_there(self, sha256: str) -> bool:
        found = self._bucket.stat(object_of_blob(sha256))
        if found is None or self._beat is None:
            return found is not None
        return self._now(*self._beat) - found.modified_at < timedelta(seconds=SWEPT_AFTER_S / 2)

    def say_alive(self, server_id: str) -> datetime:
        """Leave a sign of life, if the last one is old, and return the bucket's time."""
        if self._beat is not None and time.monotonic() - self._beat[1] < _BEAT_S:
            return self._now(*self._beat)
        name = _object_of_server(server_id)
        self._bucket.write(name, b"{}")
        found = self._bucket.stat(name)
        if found is None:
            raise Changed(name)
        self._beat = found.modified_at, time.monotonic()
        return found.modified_at

    @staticmethod
    def _now(beat: datetime, beat_s: float) -> datetime:
        return beat + timedelta(seconds=time.monotonic() - beat_s)

    def lives(self, server_id: str, now: datetime, *, lease_s: float) -> bool:
        """Return whether a server has left a sign of life lately."""
        found = self._bucket.stat(_object_of_server(server_id))
        return found is not None and now - found.modified_at < timedelta(seconds=lease_s)


def _object_of_server(server_id: str) -> str:
    return f"servers/{server_id}.json"
