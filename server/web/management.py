"""The management API: register, list, inspect, activate, shadow, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse

from server.metrics import Metrics
from server.rights import Grant
from server.settings import Settings
from server.spec import MODEL_NAME
from server.store.errors import InvalidName, ModelNotReady
from server.store.records import State, VersionRecord
from server.web.auditing import note_version
from server.web.errors import RegistrationFailed
from server.web.front import GRANT
from server.web.interfaces import Catalog
from server.web.partial_uploads import PartialUploads
from server.web.paths import version_number
from server.web.pointing_routes import add_pointing_routes, asked_by
from server.web.registering import Registering
from server.web.shadow_routes import add_shadow_routes

__all__ = ["management_router"]


def management_router(
    catalog: Catalog, settings: Callable[[], Settings], metrics: Metrics, uploads: PartialUploads
) -> APIRouter:
    """Return the routes."""
    registering = Registering(catalog, settings, uploads)
    router = APIRouter(prefix="/v1/models", tags=["management"])

    waited: dict[int | str, dict[str, Any]] = {
        200: {"description": "The version is built and serves: the answer with ?wait=true"}
    }

    @router.put("/{model}", status_code=202, summary="Register a new version", responses=waited)
    async def register(
        model: str,
        request: Request,
        wait: bool = False,  # noqa: FBT001, FBT002
        idempotency_key: Annotated[str | None, Header()] = None,  # noqa: ARG001 - for the document; it is read below
    ) -> Response:
        if not MODEL_NAME.fullmatch(model):
            raise InvalidName(model)
        record = await registering.register(model, request)
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
