"""The management API's part on shadows: a version that runs on live batches and answers nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request

from server.protocol.errors import MalformedRequest
from server.protocol.json_examples import parse_json
from server.settings import Settings
from server.web.interfaces import Catalog
from server.web.management_body import read_small_body
from server.web.paths import version_number

__all__ = ["add_shadow_routes", "read_share"]


def add_shadow_routes(router: APIRouter, catalog: Catalog, settings: Callable[[], Settings]) -> None:
    """Add the routes to the management router."""

    @router.post("/{model}/versions/{version}:shadow", summary="Let a version run on a share of the live batches")
    async def set_shadow(model: str, version: str, request: Request) -> dict[str, Any]:
        body = await read_small_body(request, settings())
        return await catalog.set_shadow(model, version_number(version), read_share(body))

    @router.get("/{model}/versions/{version}/shadow", summary="How a shadow's answers compare")
    async def shadow(model: str, version: str) -> dict[str, Any]:
        return catalog.shadow(model, version_number(version))


def read_share(body: bytes) -> float:
    """Return the share of the live batches that a body asks for. Errors: MalformedRequest."""
    message = parse_json(body)
    share = message.get("share") if isinstance(message, dict) and len(message) == 1 else None
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise MalformedRequest(
            'expected {"share": S} with S from 0, which ends the shadow, to 1, which takes every batch'
        )
    return float(share)
