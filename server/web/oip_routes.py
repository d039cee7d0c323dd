"""Routes of the Open Inference Protocol beside predictions: what it tells of models, and its repository."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request

from server.protocol import MalformedRequest
from server.rights import Grant
from server.settings import Settings
from server.web import oip_facts
from server.web.errors import NotOffered
from server.web.front import GRANT
from server.web.interfaces import Catalog, ResidentModel
from server.web.management_body import read_small_body
from server.web.paths import version_number
from server.web.pointing_routes import asked_by

__all__ = ["oip_model_router", "oip_repository_router"]


def oip_model_router(catalog: Catalog) -> APIRouter:
    """Return the routes that ask."""
    router = APIRouter(prefix="/v2", tags=["open inference protocol"])

    @router.get("", summary="Name, version and extensions of the server")
    async def server() -> dict[str, Any]:
        return oip_facts.server_metadata()

    # Before the routes of models: a model may be called "stats" only where it is asked by version.
    @router.get("/models/stats", summary="Statistics of every version that serves")
    async def all_statistics(request: Request) -> dict[str, Any]:
        grant: Grant = request.scope[GRANT]
        return oip_facts.statistics_of(catalog, covers=grant.covers)

    _add_route(router, catalog, "", "Inputs and outputs of a model", oip_facts.model_metadata)
    _add_route(router, catalog, "/ready", "Does a model answer", _is_ready)
    _add_route(router, catalog, "/config", "Configuration of a model", oip_facts.model_config)
    _add_route(router, catalog, "/stats", "Statistics of a model", _statistics)
    return router


def _add_route(
    router: APIRouter, catalog: Catalog, tail: str, summary: str, tell: Callable[[ResidentModel], dict[str, Any]]
) -> None:
    """Add a question, for the version that serves and for one by its number."""

    @router.get("/models/{model}" + tail, summary=summary)
    async def of_model(model: str) -> dict[str, Any]:
        return tell(catalog.resolve(model))

    @router.get("/models/{model}/versions/{version}" + tail, summary=f"{summary}: one version")
    async def of_version(model: str, version: str) -> dict[str, Any]:
        return tell(catalog.resolve(model, version_number(version)))


def _is_ready(served: ResidentModel) -> dict[str, Any]:
    return {"name": served.name, "ready": True}  # who resolves answers


def _statistics(served: ResidentModel) -> dict[str, Any]:
    return {"model_stats": [oip_facts.model_statistics(served)]}


def oip_repository_router(catalog: Catalog, settings: Callable[[], Settings]) -> APIRouter:
    """Return the routes that list, load and unload."""
    router = APIRouter(prefix="/v2/repository", tags=["management"])

    async def body_of(request: Request) -> dict[str, Any]:
        return _object(await read_small_body(request, settings()))

    @router.post("/index", summary="States of all versions of all models")
    async def index(request: Request) -> list[dict[str, str]]:
        only_ready = (await body_of(request)).get("ready", False)
        if not isinstance(only_ready, bool):
            raise MalformedRequest("'ready' must be true or false")
        grant: Grant = request.scope[GRANT]
        records = [record for record in catalog.models() if grant.covers(record.model)]
        return oip_facts.repository_index(records, only_ready=only_ready)

    @router.post("/models/{model}/load", summary="Let a model answer again")
    async def load(model: str, request: Request) -> dict[str, str]:
        parameters = (await body_of(request)).get("parameters") or {}
        if parameters:
            raise NotOffered(
                "a model is loaded as it was built: send no 'parameters'; register another version with other options"
            )
        return oip_facts.index_entry(await catalog.load(model, by=asked_by(request)))

    @router.post("/models/{model}/unload", summary="Let a model answer no more")
    async def unload(model: str, request: Request) -> dict[str, str]:
        await body_of(request)  # a model has no dependents: there is nothing that parameters could change
        return oip_facts.index_entry(await catalog.unload(model, by=asked_by(request)))

    return router


def _object(body: bytes) -> dict[str, Any]:
    """Return a body's JSON object; nothing at all is an empty one. Errors: MalformedRequest."""
    try:
        value = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        raise MalformedRequest("the body is not JSON; send an object, or nothing") from None
    if not isinstance(value, dict):
        raise MalformedRequest("the body must be a JSON object, or empty")
    return value
