"""``GET /v1/status``: what an operator wants to know of the server itself, and no probe does."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from server.web.interfaces import ServerStatus

__all__ = ["server_status_router"]


def server_status_router(status: ServerStatus) -> APIRouter:
    """Return the route: it tells what the machine can't do. ``status`` is called on a thread."""
    router = APIRouter(prefix="/v1/status", tags=["observation"])

    @router.get("", summary="The server itself: how models are built here")
    async def server_status() -> dict[str, Any]:
        return await run_in_threadpool(status)

    return router
