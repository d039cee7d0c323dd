"""What an operator may look into: the batches of the last moments."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Query, Request

from server.web.auth import Gate
from server.web.interfaces import Batches

__all__ = ["debug_router"]


def debug_router(batches: Batches, gate: Gate) -> APIRouter:
    """Return the routes, all of them behind ``gate``: they tell who is served, and how much."""

    async def guard(request: Request) -> None:
        gate.check(request.scope["headers"], request.scope.get("client"))

    router = APIRouter(prefix="/v1/debug", dependencies=[Depends(guard)], tags=["observation"])

    @router.get("/batches", summary="Recent batches, and why each ran then and in that size")
    async def recent(model: str | None = None, limit: int = Query(50, ge=1, le=512)) -> dict[str, list[dict[str, Any]]]:
        return {"batches": batches.recent(model=model, limit=limit)}

    return router
