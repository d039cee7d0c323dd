"""``PUT /v1/models/{m}`` from its body to a version: what came, whether it came whole, and whether it came before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from fastapi import Request

from server.build.source import ArchiveSource, Source, TextSource
from server.settings import Settings
from server.spec import ModelSpec
from server.store.errors import unwritable
from server.store.records import Intake, VersionRecord
from server.web.bodies import body_chunks
from server.web.digests import check_digest
from server.web.errors import BodyTooLarge, RegistrationRefused, UploadNotFound
from server.web.idempotency import Repeats, content_hash, read_key
from server.web.interfaces import Catalog
from server.web.management_body import announced_length, read_small_body
from server.web.partial_uploads import PartialUploads
from server.web.registration import UploadedArchive, read_registration, read_spec
from server.web.source_text import function_name, source_text
from server.web.uploads import Upload, receive_upload

__all__ = ["STALL_S", "Registering"]

#: A multipart body is the archive and this much at most: specification, part headers, boundaries.
_FORM_ALLOWANCE_BYTES = 5 * 2**20
#: Seconds that an upload may stand still; as a whole it takes as long as it takes. Precedent: nginx.
STALL_S = 60.0


class Registering:
    """Takes registrations in. ``uploads`` are those that came in pieces."""

    def __init__(self, catalog: Catalog, settings: Callable[[], Settings], uploads: PartialUploads) -> None:
        self._catalog = catalog
        self._settings = settings
        self._uploads = uploads
        self._repeats = Repeats(catalog)

    async def register(self, model: str, request: Request) -> VersionRecord:
        """Return the version that the request makes, or made when it came before.

        Errors: those of the body's parts; IdempotencyKeyInUse; IdempotencyKeyReused; those of ``Catalog.register``.
        """
        key = read_key(request.headers.get("idempotency-key"))
        with nullcontext() if key is None else self._repeats.claimed(model, key):
            return await self._read(model, request, key)

    async def _read(self, model: str, request: Request, key: str | None) -> VersionRecord:
        content_type = request.headers.get("content-type", "").encode("latin-1")
        kind = content_type.partition(b";")[0].strip().lower()
        settings = self._settings()
        if kind == b"multipart/form-data":
            length_bytes = announced_length(request)
            if length_bytes is not None and length_bytes > settings.max_archive_bytes + _FORM_ALLOWANCE_BYTES:
                raise BodyTooLarge(
                    f"the upload of {length_bytes} bytes",
                    limit_bytes=settings.max_archive_bytes,
                    setting="max_archive_bytes",
                )
            if key is None or self._repeats.earlier(model, key) is None:
                # What will be refused whatever comes is refused before it comes.
                n_bytes = max(0, (length_bytes or 0) - _FORM_ALLOWANCE_BYTES)
                await self._catalog.check_new(model, n_bytes=n_bytes)
            upload = await receive_upload(
                body_chunks(request.receive, stall_s=STALL_S),
                content_type=content_type,
                path=self._catalog.new_upload_path(),
                max_archive_bytes=settings.max_archive_bytes,
                check_spec=read_spec,
                allow_source=settings.allow_source,
            )
            async with _unless_taken(upload.path):
                spec = ModelSpec() if upload.spec is None else read_spec(upload.spec)
                return await self._settle(model, spec, _uploaded(upload), key, upload.sha256)
        if kind in {b"application/json", b""}:
            return await self._read_json(model, await read_small_body(request, settings), settings, key)
        raise RegistrationRefused(
            f"Content-Type {kind.decode('latin-1')[:100]!r} is no registration: send multipart/form-data with "
            "'archive' and 'spec', or application/json with 'import_path' or 'upload'"
        )

    async def _read_json(self, model: str, body: bytes, settings: Settings, key: str | None) -> VersionRecord:
        spec, source, weights = read_registration(body, settings)
        if isinstance(source, UploadedArchive):
            return await self._take_upload(model, spec, source.id, key)
        if weights is None:
            return await self._settle(model, spec, source, key)
        path = self._catalog.new_upload_path()
        async with _unless_taken(path):
            return await self._settle(model, spec, await _with_weights(source, weights, path), key)

    async def _take_upload(self, model: str, spec: ModelSpec, upload_id: str, key: str | None) -> VersionRecord:
        """Register what came in pieces. It is gone then: whoever asks again for the same gets the version."""
        try:
            async with self._uploads.taken(upload_id) as whole:
                return await self._settle(model, spec, ArchiveSource(whole.path, whole.filename), key, whole.sha256)
        except UploadNotFound:
            earlier = None if key is None else self._repeats.earlier(model, key)
            if key is None or earlier is None:
                raise
            content = content_hash(spec, ArchiveSource(Path(), ""), earlier.intake.archive_sha256)
            return self._repeats.same(model, key, content) or earlier

    async def _settle(
        self, model: str, spec: ModelSpec, source: Source, key: str | None, file_sha256: str = ""
    ) -> VersionRecord:
        intake = Intake(archive_sha256=file_sha256)
        if key is not None:
            content = content_hash(spec, source, file_sha256)
            earlier = self._repeats.same(model, key, content)
            if earlier is not None:
                if source.upload is not None:
                    source.upload.unlink(missing_ok=True)
                return earlier
            intake = Intake(archive_sha256=file_sha256, key=key, content=content)
        return await self._catalog.register(model, spec, source, intake=intake)


def _uploaded(upload: Upload) -> Source:
    check_digest(upload.expected_sha256, upload.sha256)
    if upload.source is not None:
        return TextSource(source_text(upload.source), function_name(upload.function), upload.path)
    assert upload.path is not None, "a form without source has an archive"
    return ArchiveSource(upload.path, upload.filename)


async def _with_weights(source: Source, weights: bytes, path: Path) -> Source:
    assert isinstance(source, TextSource), "nothing else has weights"
    try:
        await asyncio.to_thread(path.write_bytes, weights)
    except OSError as error:
        raise unwritable("the weights", error) from error
    return replace(source, path=path)


@asynccontextmanager
async def _unless_taken(path: Path | None) -> AsyncIterator[None]:
    """Remove an uploaded file if what is done with it fails."""
    try:
        yield
    except BaseException:
        if path is not None:
            path.unlink(missing_ok=True)  # noqa: ASYNC240 - one system call; a thread would outlive a cancel
        raise
