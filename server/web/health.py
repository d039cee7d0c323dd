"""Is the process alive, can it answer, and what has it counted."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from server.metrics import Metrics
from server.web.interfaces import Catalog

__all__ = ["health_router"]


def health_router(catalog: Catalog, metrics: Metrics) -> APIRouter:
    """Return the routes. They are open: probes and scrapers carry no tokens."""
    router = APIRouter(tags=["health"])

    @router.get("/v2/health/live", summary="Is the process alive")
    async def live() -> dict[str, Any]:
        return {"live": True}

    @router.get("/v2/health/ready", summary="Is every active model warm")
    async def ready() -> Response:
        reasons = catalog.readiness()
        if not reasons:
            return JSONResponse({"ready": True})
        body = {"ready": False, "error": "not ready: " + "; ".join(reasons), "reasons": reasons}
        return JSONResponse(body, status_code=503, headers={"Retry-After": "1"})

    @router.get("/metrics", summary="Prometheus exposition")
    async def scrape() -> Response:
        scraped = metrics.render()
        return Response(scraped.body, headers={"Content-Type": scraped.content_type})

    return router
