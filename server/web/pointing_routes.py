"""The management API's part on what leads to a version: labels, and the history that rolling back goes by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from server.protocol.errors import MalformedRequest
from server.protocol.json_examples import parse_json
from server.rights import Grant
from server.settings import Settings
from server.web.front import GRANT
from server.web.interfaces import Catalog
from server.web.management_body import read_small_body

__all__ = ["add_pointing_routes", "asked_by", "read_version"]


def add_pointing_routes(router: APIRouter, catalog: Catalog, settings: Callable[[], Settings]) -> None:
    """Add the routes to the management router."""

    @router.get("/{model}/labels", summary="The labels that were set, with the version that each leads to")
    async def labels(model: str) -> dict[str, Any]:
        return {"labels": dict(sorted(catalog.labels(model).items()))}

    @router.put("/{model}/labels/{label}", summary="Load a version and let a label lead to it")
    async def set_label(model: str, label: str, request: Request) -> dict[str, Any]:
        body = await read_small_body(request, settings())
        return (await catalog.set_label(model, label, read_version(body))).to_json()

    @router.delete("/{model}/labels/{label}", status_code=204, summary="Remove a label that was set")
    async def remove_label(model: str, label: str) -> Response:
        await catalog.remove_label(model, label)
        return Response(status_code=204)

    @router.get("/{model}/history", summary="What was activated, oldest first: which version, when, by whom")
    async def history(model: str) -> dict[str, Any]:
        return {"history": catalog.history(model)}

    @router.post("/{model}:rollback", summary="Activate the version that answered before")
    async def rollback(model: str, request: Request) -> dict[str, Any]:
        return (await catalog.rollback(model, by=asked_by(request))).to_json()


def asked_by(request: Request) -> str:
    """Return who sends a request, for the history: the name of its token."""
    grant: Grant = request.scope[GRANT]
    return grant.name


def read_version(body: bytes) -> int:
    """Return the version that a body names. Errors: MalformedRequest."""
    message = parse_json(body)
    version = message.get("version") if isinstance(message, dict) and len(message) == 1 else None
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise MalformedRequest('expected {"version": N} with N from 1, a version of the model')
    return version
