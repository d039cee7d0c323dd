"""What an operator may look into: the batches of the last moments."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query, Request

from server.rights import Grant
from server.web.front import GRANT
from server.web.interfaces import Batches

__all__ = ["debug_router"]


def debug_router(batches: Batches) -> APIRouter:
    """Return the routes: they tell who is served, and how much."""
    router = APIRouter(prefix="/v1/debug", tags=["observation"])

    @router.get("/batches", summary="Recent batches, and why each ran then and in that size")
    async def recent(
        request: Request, model: str | None = None, limit: int = Query(50, ge=1, le=512)
    ) -> dict[str, list[dict[str, Any]]]:
        grant: Grant = request.scope[GRANT]
        return {"batches": batches.recent(model=model, limit=limit, covers=grant.covers)}

    return router
