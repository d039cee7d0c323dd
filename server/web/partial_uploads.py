"""Archives that come in pieces: on disk, so that an upload goes on after a lost connection and a restart.

Theory of operation. An upload is two files: what is known of it, written once, and what has come so far, whose length
is how far it is. Nothing else is kept, so nothing can disagree. Bytes are synced before they are acknowledged. Uploads
that nobody went on with for a day are removed, every hour and when another one begins; their number and their bytes are
bounded, and the last quarter of both is for who has none yet, so that nobody's leftovers keep others out.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from os import fsync
from pathlib import Path
from typing import Any

from server.store.errors import unwritable
from server.web.digests import check_digest
from server.web.errors import BodyTooLarge, ClientGone, UploadConflict, UploadNotFound

__all__ = ["PartialUpload", "PartialUploads", "WholeUpload"]

_log = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9_-]{22}")
#: Uploads at once: each is somebody's connection that was lost; and bytes of all, in terms of those that one may have.
_MAX_UPLOADS, _MAX_TIMES = 16, 4
#: And what of both is left to those who have none.
_KEPT_UPLOADS, _KEPT_TIMES = 4, 1
#: Seconds without a piece until an upload may be removed.
_MAX_AGE_S = 24 * 3600.0
#: Seconds between two looks for such ones.
_CLEAR_EVERY_S = 3600.0
_WRITE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class PartialUpload:
    """An upload of which ``offset`` of ``length`` bytes are there, and whose token began it."""

    id: str
    length: int
    offset: int
    owner: str = ""


@dataclass(frozen=True, slots=True)
class WholeUpload:
    """An upload that is all there, and the SHA-256 of its file."""

    path: Path
    filename: str
    sha256: str


class PartialUploads:
    """The uploads in ``directory``, made with the first. One may have ``max_bytes``, all together four times that."""

    def __init__(self, directory: Path, *, max_bytes: Callable[[], int]) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        #: Those that are being written to or read.
        self._busy: set[str] = set()

    def check_room(self, length: int, *, owner: str) -> None:
        """Errors: those of ``begin`` for an upload of ``length`` bytes of ``owner``."""
        most = self._max_bytes()
        if length > most:
            raise BodyTooLarge(f"the upload of {length} bytes", limit_bytes=most, setting="max_archive_bytes")
        self.remove_abandoned()
        uploads = list(self._all())
        n_own = sum(each.owner == owner for each in uploads)
        n_kept, times_kept = (_KEPT_UPLOADS, _KEPT_TIMES) if n_own else (0, 0)
        is_full = len(uploads) >= _MAX_UPLOADS - n_kept
        if is_full or sum(each.length for each in uploads) + length > (_MAX_TIMES - times_kept) * most:
            raise UploadConflict(
                f"{len(uploads)} uploads are unfinished, {n_own} of them yours, no more of yours are taken: "
                "finish or delete one"
            )
        to_come = sum(each.length - each.offset for each in uploads)
        space = os.statvfs(next(path for path in (self._directory, *self._directory.parents) if path.exists()))
        if to_come + length > space.f_bavail * space.f_frsize:
            raise unwritable("the upload", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    def begin(self, length: int, *, filename: str, sha256: str | None, owner: str) -> PartialUpload:
        """Begin an upload of ``length`` bytes. Errors: BodyTooLarge; UploadConflict; StoreUnwritable."""
        self.check_room(length, owner=owner)
        upload_id = secrets.token_urlsafe(16)
        facts = {"length": length, "filename": filename, "sha256": sha256, "owner": owner}
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            self._content(upload_id).touch(exist_ok=False)
            # The facts make it an upload: what has none is a leftover.
            self._facts_file(upload_id).write_text(json.dumps(facts), encoding="utf-8")
        except OSError as error:
            raise unwritable("the upload", error) from error
        return PartialUpload(upload_id, length, 0, owner)

    def look_up(self, upload_id: str) -> PartialUpload:
        """Return how far an upload is. Errors: UploadNotFound."""
        facts = self._facts(upload_id)
        try:
            n_bytes = self._content(upload_id).stat().st_size
        except OSError:
            raise UploadNotFound(upload_id) from None
        return PartialUpload(upload_id, facts["length"], n_bytes, facts["owner"])

    async def append(self, upload_id: str, offset: int, chunks: AsyncIterator[bytes]) -> PartialUpload:
        """Add a piece that begins at ``offset``. What came of it stays if the connection breaks.

        Errors: UploadNotFound; UploadConflict for another offset, or while another piece comes; BodyTooLarge for more
            than was announced; StoreUnwritable; those of ``chunks``.
        """
        with self._alone(upload_id):
            upload = self.look_up(upload_id)
            if offset != upload.offset:
                raise UploadConflict(
                    f"{upload.offset} bytes of the upload are there: go on at Upload-Offset {upload.offset}"
                )
            left = upload.length - offset
            pending = bytearray()
            try:
                async for chunk in chunks:
                    left -= len(chunk)
                    if left < 0:
                        raise BodyTooLarge("the upload", limit_bytes=upload.length, setting="its Upload-Length")
                    pending += chunk
                    if len(pending) >= _WRITE_BYTES:
                        pending = await self._write(upload_id, pending)
            except ClientGone:
                await asyncio.shield(self._write(upload_id, pending))
                raise
            await self._write(upload_id, pending)
            return self.look_up(upload_id)

    @asynccontextmanager
    async def taken(self, upload_id: str) -> AsyncIterator[WholeUpload]:
        """Give an upload that is all there, and forget it when the block ends well.

        Errors: UploadNotFound; UploadConflict; RegistrationRefused if it is not what its digest says.
        """
        with self._alone(upload_id):
            upload, facts = self.look_up(upload_id), self._facts(upload_id)
            if upload.offset < upload.length:
                raise UploadConflict(f"the upload has {upload.offset} of {upload.length} bytes: send the rest first")
            path = self._content(upload_id)
            sha256 = await asyncio.to_thread(_sha256, path)
            check_digest(facts["sha256"], sha256)
            yield WholeUpload(path, facts["filename"], sha256)
            self._forget(upload_id)

    def remove(self, upload_id: str) -> None:
        """Forget an upload. Errors: UploadNotFound; UploadConflict while it is being written."""
        with self._alone(upload_id):
            self._facts(upload_id)
            self._forget(upload_id)

    def remove_abandoned(self) -> int:
        """Forget the uploads that nobody went on with for a day, and return their bytes. Errors: OSError."""
        n_bytes = 0
        for content in self._directory.glob("*.part"):
            status = content.stat()
            is_old = time.time() - status.st_mtime > _MAX_AGE_S
            if content.stem not in self._busy and (is_old or not self._facts_file(content.stem).exists()):
                self._forget(content.stem)
                n_bytes += status.st_size
        return n_bytes

    async def keep_clear(self, *, every_s: float = _CLEAR_EVERY_S) -> None:
        """Remove what is abandoned, now and again.

        It is done on the event loop, so that nobody begins or goes on with one meanwhile.
        """
        while True:
            try:
                n_bytes = self.remove_abandoned()
            except OSError as error:
                _log.warning("abandoned uploads could not be removed (%s)", error.strerror)
            else:
                if n_bytes:
                    _log.info("uploads that nobody went on with for a day are removed: %d bytes", n_bytes)
            await asyncio.sleep(every_s)

    def _forget(self, upload_id: str) -> None:
        self._facts_file(upload_id).unlink(missing_ok=True)
        self._content(upload_id).unlink(missing_ok=True)

    @contextmanager
    def _alone(self, upload_id: str) -> Iterator[None]:
        if upload_id in self._busy:
            raise UploadConflict("another request is busy with the upload: wait for it, then ask for its offset")
        self._busy.add(upload_id)
        try:
            yield
        finally:
            self._busy.discard(upload_id)

    async def _write(self, upload_id: str, pending: bytearray) -> bytearray:
        try:
            await asyncio.to_thread(_append, self._content(upload_id), pending)
        except OSError as error:
            raise unwritable("the upload", error) from error
        return bytearray()

    def _all(self) -> Iterator[PartialUpload]:
        for path in self._directory.glob("*.json"):
            with suppress(UploadNotFound):  # it is damaged
                yield self.look_up(path.stem)

    def _facts(self, upload_id: str) -> dict[str, Any]:
        if not _ID.fullmatch(upload_id):
            raise UploadNotFound(upload_id)
        try:
            facts: dict[str, Any] = json.loads(self._facts_file(upload_id).read_text(encoding="utf-8"))
            return {
                "length": int(facts["length"]),
                "filename": str(facts["filename"]),
                "sha256": facts["sha256"],
                "owner": str(facts.get("owner", "")),
            }
        except (OSError, ValueError, KeyError, TypeError):
            raise UploadNotFound(upload_id) from None

    def _facts_file(self, upload_id: str) -> Path:
        return self._directory / f"{upload_id}.json"

    def _content(self, upload_id: str) -> Path:
        return self._directory / f"{upload_id}.part"


def _append(path: Path, data: bytearray) -> None:
    with path.open("ab", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        fsync(file.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
