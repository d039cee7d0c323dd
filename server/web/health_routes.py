"""The routes of probes and scrapers, for the application's own list of what it offers."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from server.metrics import Metrics
from server.web.health import Health
from server.web.status import Reply

__all__ = ["health_router"]


def health_router(health: Health, metrics: Metrics) -> APIRouter:
    """Return the routes. They are open: probes and scrapers carry no tokens."""
    router = APIRouter(tags=["health"])

    @router.get("/v2/health/live", summary="Is the process alive")
    async def live() -> Response:
        return _response(health.live())

    @router.get("/v2/health/ready", summary="Is every active model warm")
    async def ready() -> Response:
        return _response(health.ready())

    @router.get("/metrics", summary="Prometheus exposition", response_class=PlainTextResponse)
    async def scrape() -> Response:
        scraped = await metrics.scrape()
        return Response(scraped.body, headers={"Content-Type": scraped.content_type})

    return router


def _response(reply: Reply) -> Response:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reply.headers}
    return Response(bytes(reply.body), status_code=reply.status, headers=headers)
