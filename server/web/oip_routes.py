"""Routes of the Open Inference Protocol beside predictions: what it tells of models, and its repository."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Depends, Request

from server.protocol import MalformedRequest
from server.settings import Settings
from server.web import oip_facts
from server.web.auth import Gate
from server.web.bodies import read_body
from server.web.errors import NotOffered
from server.web.interfaces import Catalog, ResidentModel
from server.web.paths import version_number
from server.web.request_headers import content_length

__all__ = ["oip_model_router", "oip_repository_router"]


def oip_model_router(catalog: Catalog, gate: Gate | None) -> APIRouter:
    """Return the routes that ask; ``gate`` guards those of models where predictions are guarded, else it is None."""

    async def guard(request: Request) -> None:
        if gate is not None:
            gate.check(request.scope["headers"], request.scope.get("client"))

    router = APIRouter(prefix="/v2", tags=["open inference protocol"])
    models = APIRouter(prefix="/models", dependencies=[Depends(guard)])

    @router.get("", summary="Name, version and extensions of the server")
    async def server() -> dict[str, Any]:
        return oip_facts.server_metadata()

    # Before the routes of models: a model may be called "stats" only where it is asked by version.
    @models.get("/stats", summary="Statistics of every version that serves")
    async def all_statistics() -> dict[str, Any]:
        return oip_facts.statistics_of(catalog)

    _add_route(models, catalog, "", "Inputs and outputs of a model", oip_facts.model_metadata)
    _add_route(models, catalog, "/ready", "Does a model answer", _is_ready)
    _add_route(models, catalog, "/config", "Configuration of a model", oip_facts.model_config)
    _add_route(models, catalog, "/stats", "Statistics of a model", _statistics)
    router.include_router(models)
    return router


def _add_route(
    router: APIRouter, catalog: Catalog, tail: str, summary: str, tell: Callable[[ResidentModel], dict[str, Any]]
) -> None:
    """Add a question, for the version that serves and for one by its number."""

    @router.get("/{model}" + tail, summary=summary)
    async def of_model(model: str) -> dict[str, Any]:
        return tell(catalog.resolve(model))

    @router.get("/{model}/versions/{version}" + tail, summary=f"{summary}: one version")
    async def of_version(model: str, version: str) -> dict[str, Any]:
        return tell(catalog.resolve(model, version_number(version)))


def _is_ready(served: ResidentModel) -> dict[str, Any]:
    return {"name": served.name, "ready": True}  # who resolves answers


def _statistics(served: ResidentModel) -> dict[str, Any]:
    return {"model_stats": [oip_facts.model_statistics(served)]}


def oip_repository_router(catalog: Catalog, settings: Callable[[], Settings], gate: Gate) -> APIRouter:
    """Return the routes that list, load and unload, all of them behind ``gate``."""

    async def guard(request: Request) -> None:
        gate.check(request.scope["headers"], request.scope.get("client"))

    router = APIRouter(prefix="/v2/repository", dependencies=[Depends(guard)], tags=["management"])

    async def body_of(request: Request) -> dict[str, Any]:
        now = settings()
        return await _read_object(request, limit_bytes=now.max_body_bytes, timeout_s=now.default_timeout_ms / 1e3)

    @router.post("/index", summary="States of all versions of all models")
    async def index(request: Request) -> list[dict[str, str]]:
        only_ready = (await body_of(request)).get("ready", False)
        if not isinstance(only_ready, bool):
            raise MalformedRequest("'ready' must be true or false")
        return oip_facts.repository_index(catalog.models(), only_ready=only_ready)

    @router.post("/models/{model}/load", summary="Let a model answer again")
    async def load(model: str, request: Request) -> dict[str, str]:
        parameters = (await body_of(request)).get("parameters") or {}
        if parameters:
            raise NotOffered(
                "a model is loaded as it was built: send no 'parameters'; register another version with other options"
            )
        return oip_facts.index_entry(await catalog.load(model, by="api"))

    @router.post("/models/{model}/unload", summary="Let a model answer no more")
    async def unload(model: str, request: Request) -> dict[str, str]:
        await body_of(request)  # a model has no dependents: there is nothing that parameters could change
        return oip_facts.index_entry(await catalog.unload(model, by="api"))

    return router


async def _read_object(request: Request, *, limit_bytes: int, timeout_s: float) -> dict[str, Any]:
    """Return the body as a JSON object; nothing at all is an empty one.

    Errors: MalformedRequest; BodyTooLarge; BodyTimeout.
    """
    length = request.headers.get("content-length")
    body = await read_body(
        request.receive,
        length_bytes=content_length(None if length is None else length.encode("latin-1")),
        limit_bytes=limit_bytes,
        setting="max_body_bytes",
        timeout_s=timeout_s,
    )
    try:
        value = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        raise MalformedRequest("the body is not JSON; send an object, or nothing") from None
    if not isinstance(value, dict):
        raise MalformedRequest("the body must be a JSON object, or empty")
    return value
