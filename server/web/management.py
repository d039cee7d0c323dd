"""The management API: register, list, inspect, activate, shadow, delete."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from server.build.source import ArchiveSource, Source, TextSource
from server.metrics import Metrics
from server.rights import Grant
from server.settings import Settings
from server.spec import MODEL_NAME, ModelSpec
from server.store.errors import InvalidName, ModelNotReady, unwritable
from server.store.records import State, VersionRecord
from server.web.auditing import note_version
from server.web.bodies import body_chunks, read_body
from server.web.errors import BodyTooLarge, RegistrationFailed, RegistrationRefused
from server.web.front import GRANT
from server.web.interfaces import Catalog
from server.web.paths import version_number
from server.web.pointing_routes import add_pointing_routes, asked_by
from server.web.registration import read_registration, read_spec
from server.web.request_headers import content_length
from server.web.shadow_routes import add_shadow_routes
from server.web.source_text import function_name, source_text
from server.web.uploads import Upload, receive_upload

__all__ = ["management_router"]

#: A multipart body is the archive and this much at most: specification, part headers, boundaries.
_FORM_ALLOWANCE_BYTES = 5 * 2**20
#: Seconds that an upload may stand still; as a whole it takes as long as it takes. Precedent: nginx.
_STALL_S = 60.0


def management_router(catalog: Catalog, settings: Callable[[], Settings], metrics: Metrics) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/v1/models", tags=["management"])

    waited: dict[int | str, dict[str, Any]] = {
        200: {"description": "The version is built and serves: the answer with ?wait=true"}
    }

    @router.put("/{model}", status_code=202, summary="Register a new version", responses=waited)
    async def register(model: str, request: Request, wait: bool = False) -> Response:  # noqa: FBT001, FBT002
        if not MODEL_NAME.fullmatch(model):
            raise InvalidName(model)
        record = await _register(catalog, settings(), model, request)
        note_version(request.scope, record.version)
        if wait:
            return _waited(await catalog.wait(model, record.version))
        return JSONResponse({**_brief(record), "status_url": _status_url(request, record)}, status_code=202)

    @router.get("", summary="List every version of every model")
    async def models(request: Request) -> dict[str, list[dict[str, Any]]]:
        grant: Grant = request.scope[GRANT]
        return {"models": [record.to_json() for record in catalog.models() if grant.covers(record.model)]}

    @router.get("/{model}/versions/{version}/status", summary="State, reason and progress of a version")
    async def status(model: str, version: str) -> dict[str, Any]:
        return catalog.version(model, version_number(version)).to_json()

    @router.post("/{model}/versions/{version}:activate", summary="Switch to a version, or roll back")
    async def activate(model: str, version: str, request: Request) -> dict[str, Any]:
        return (await catalog.activate(model, version_number(version), by=asked_by(request))).to_json()

    @router.delete("/{model}", status_code=204, summary="Delete a model")
    async def delete_model(model: str) -> Response:
        versions = [record.version for record in catalog.versions(model)]
        await catalog.delete(model, None)
        for version in versions:
            metrics.forget(model, version)
        return Response(status_code=204)

    @router.delete("/{model}/versions/{version}", status_code=204, summary="Delete a version")
    async def delete_version(model: str, version: str) -> Response:
        number = version_number(version)
        await catalog.delete(model, number)
        metrics.forget(model, number)
        return Response(status_code=204)

    add_shadow_routes(router, catalog, settings)
    add_pointing_routes(router, catalog, settings)
    _add_documents(router, catalog)
    return router


def _add_documents(router: APIRouter, catalog: Catalog) -> None:
    """Add the routes of what the builder wrote beside a model."""

    @router.get("/{model}/certificate", summary="Certificate of the active version")
    async def active_certificate(model: str) -> Response:
        return _json_document(catalog.certificate(model, None))

    @router.get("/{model}/versions/{version}/certificate", summary="How a version was vectorized and checked")
    async def certificate(model: str, version: str) -> Response:
        return _json_document(catalog.certificate(model, version_number(version)))

    @router.get("/{model}/costs", summary="Measured costs of the active version")
    async def active_costs(model: str) -> Response:
        return _json_document(catalog.costs(model, None))

    @router.get("/{model}/versions/{version}/costs", summary="Every measured mode of every bucket")
    async def costs(model: str, version: str) -> Response:
        return _json_document(catalog.costs(model, version_number(version)))


async def _register(catalog: Catalog, settings: Settings, model: str, request: Request) -> VersionRecord:
    content_type = request.headers.get("content-type", "").encode("latin-1")
    kind = content_type.partition(b";")[0].strip().lower()
    length_bytes = content_length(_raw_header(request, b"content-length"))
    if kind == b"multipart/form-data":
        if length_bytes is not None and length_bytes > settings.max_archive_bytes + _FORM_ALLOWANCE_BYTES:
            raise BodyTooLarge(
                f"the upload of {length_bytes} bytes",
                limit_bytes=settings.max_archive_bytes,
                setting="max_archive_bytes",
            )
        upload = await receive_upload(
            body_chunks(request.receive, stall_s=_STALL_S),
            content_type=content_type,
            path=catalog.new_upload_path(),
            max_archive_bytes=settings.max_archive_bytes,
            check_spec=read_spec,
            allow_source=settings.allow_source,
        )
        async with _unless_taken(upload.path):
            spec = ModelSpec() if upload.spec is None else read_spec(upload.spec)
            return await catalog.register(model, spec, _uploaded(upload))
    if kind in {b"application/json", b""}:
        body = await read_body(
            request.receive,
            length_bytes=length_bytes,
            limit_bytes=settings.max_body_bytes,
            setting="max_body_bytes",
            timeout_s=settings.default_timeout_ms / 1e3,
        )
        spec, source, weights = read_registration(body, settings)
        if weights is None:
            return await catalog.register(model, spec, source)
        path = catalog.new_upload_path()
        async with _unless_taken(path):
            return await catalog.register(model, spec, await _with_weights(source, weights, path))
    raise RegistrationRefused(
        f"Content-Type {kind.decode('latin-1')[:100]!r} is no registration: send multipart/form-data with 'archive' "
        "and 'spec', or application/json with 'import_path'"
    )


def _uploaded(upload: Upload) -> Source:
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


def _waited(record: VersionRecord) -> Response:
    if record.state is State.FAILED:
        raise RegistrationFailed(record.reason, details=_brief(record))
    if record.state is State.BUILDING:
        # The server stops: it is known again, and built, when it has been started again.
        raise ModelNotReady(record.model, record.version, record.reason)
    return JSONResponse(record.to_json())


def _brief(record: VersionRecord) -> dict[str, Any]:
    return {"model": record.model, "version": record.version, "state": str(record.state)}


def _status_url(request: Request, record: VersionRecord) -> str:
    return f"{request.scope.get('root_path', '')}/v1/models/{quote(record.model)}/versions/{record.version}/status"


def _json_document(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _raw_header(request: Request, name: bytes) -> bytes | None:
    return next((value for key, value in request.scope["headers"] if key == name), None)
