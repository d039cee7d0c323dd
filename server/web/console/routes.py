"""What the page asks that no other client does: who looks, what goes on, and what the planner would do."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from server.rights import Grant
from server.web.console.live import Live
from server.web.console.planning import plan_json
from server.web.endless import LIVE_PATH
from server.web.front import GRANT
from server.web.interfaces import Catalog
from server.web.oip_facts import server_metadata
from server.web.paths import version_number

__all__ = ["console_router"]


def console_router(catalog: Catalog, live: Live) -> APIRouter:
    """Return the routes."""
    router = APIRouter()

    @router.get("/v1/console/session", tags=["observation"], summary="Who asks, and what he may do")
    async def session(request: Request) -> dict[str, Any]:
        grant: Grant = request.scope[GRANT]
        return {
            "who": grant.name,
            "scopes": sorted(grant.scopes),
            "all_models": grant.is_unrestricted,
            "server_version": server_metadata()["version"],
        }

    # It has no end, so that it is not in the document that others make requests from.
    @router.get(LIVE_PATH, include_in_schema=False)
    async def watch(request: Request) -> StreamingResponse:
        grant: Grant = request.scope[GRANT]
        live.check_room()
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff"}
        return StreamingResponse(live.follow(grant), media_type="text/event-stream", headers=headers)

    @router.get(
        "/v1/models/{model}/versions/{version}/plan",
        tags=["models"],
        summary="What the planner would run, and its costs",
    )
    async def plan(model: str, version: str) -> dict[str, Any]:
        return {"groups": plan_json(catalog.resolve(model, version_number(version)).cost_tables)}

    return router
