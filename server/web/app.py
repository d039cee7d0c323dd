"""Puts the web layer together: the front for predictions, and behind it, once it is needed, the rest.

FastAPI takes a quarter of a second to import, so the application behind the front is made in a thread while the
server already says that it lives, and predicts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from server.metrics import Metrics
from server.rights import Rates
from server.settings import Settings
from server.web.auth import Gate
from server.web.bodies import Receive, Send
from server.web.front import App, Front, Scope
from server.web.health import Health
from server.web.interfaces import Batches, Catalog, ServerStatus, WaitingRows
from server.web.partial_uploads import PartialUploads
from server.web.predict import Predictor
from server.web.tracing import Tracing

__all__ = ["create_app"]


def create_app(
    catalog: Catalog,
    settings: Settings,
    metrics: Metrics,
    batches: Batches | None = None,
    tracing: Tracing | None = None,
    status: ServerStatus | None = None,
    rates: Rates | None = None,
    uploads_in_pieces: PartialUploads | None = None,
    *,
    waiting_rows: WaitingRows = tuple,
) -> Front:
    """Return the ASGI callable that serves ``catalog``. Its ``prepare`` makes what is behind it ahead of need.

    ``rates``: limits of rate that other processes share; ``uploads_in_pieces``: those that come in pieces;
    ``waiting_rows``: what waits at each entry point now.
    Errors: ValueError for tokens that can't be read.
    """
    gate = Gate(settings, rates=rates, on_audit_failure=metrics.audit_failures)
    health = Health(catalog, names_models=lambda: not gate.protects_predictions)
    predictor = Predictor(catalog, metrics, max_instances=settings.max_instances, tracing=tracing)

    def make() -> App:
        from server.web.application import create_application

        return create_application(
            catalog,
            lambda: front.settings,
            metrics,
            gate,
            health,
            uploads,
            batches,
            status or _nothing,
            waiting_rows=waiting_rows,
        )

    uploads = uploads_in_pieces or PartialUploads(
        catalog.partial_upload_dir(), max_bytes=lambda: front.settings.max_archive_bytes
    )
    front = Front(_Later(make), predictor, health, settings, metrics, gate)
    return front


async def _nothing(_covers: Callable[[str], bool]) -> dict[str, Any]:
    return {}


class _Later:
    """An ASGI callable that is made at its first use, in a thread, once."""

    def __init__(self, make: Callable[[], App]) -> None:
        self._make = make
        self._made: Awaitable[App] | None = None
        self._app: App | None = None

    async def prepare(self) -> None:
        """Make it. Errors: what making it raises, to everyone who asks."""
        if self._made is None:
            self._made = asyncio.ensure_future(asyncio.to_thread(self._make))
        self._app = await asyncio.shield(self._made)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            await self.prepare()
        assert self._app is not None
        await self._app(scope, receive, send)
