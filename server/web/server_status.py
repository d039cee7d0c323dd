"""``GET /v1/status``: what an operator wants to know of the server itself, and no probe does."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from server.rights import Grant
from server.web.front import GRANT
from server.web.interfaces import ServerStatus

__all__ = ["server_status_router"]


def server_status_router(status: ServerStatus) -> APIRouter:
    """Return the route. Of models it tells those that the caller may know of."""
    router = APIRouter(prefix="/v1/status", tags=["observation"])

    @router.get("", summary="The server itself: release, readiness, devices, jail, store, models, processes, limits")
    async def server_status(request: Request) -> dict[str, Any]:
        grant: Grant = request.scope[GRANT]
        return await status(grant.covers)

    return router
