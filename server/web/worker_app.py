"""The web layer of a worker: it answers predictions of what serves, and the engine's web layer everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

from server.rights import Rates
from server.settings import Settings
from server.web.auth import Gate
from server.web.forwarding import Forwarder
from server.web.front import Front
from server.web.interfaces import RequestMetrics, ServingCatalog
from server.web.paths import VerbPath
from server.web.predict import Predictor
from server.web.status import JSON, Reply
from server.web.tracing import Tracing

__all__ = ["EngineLink", "WorkerCatalog", "WorkerHealth", "create_worker_app"]

_RETRY = (b"retry-after", b"1")


class WorkerCatalog(ServingCatalog, Protocol):
    """The models that a worker can have answered without asking anybody."""

    def serves(self, model: str, *, version: str | None, label: str | None) -> bool:
        """Return whether this model's predictions are among them."""


class EngineLink(Protocol):
    """What the web layer asks of a worker's end of the link."""

    @property
    def catalog(self) -> WorkerCatalog:
        """What serves."""

    @property
    def missing(self) -> str | None:
        """Why there is no engine; None while there is one."""


class WorkerHealth:
    """What probes of a worker ask: it knows of itself, and of the models the engine does."""

    def __init__(self, link: EngineLink) -> None:
        self._link = link
        self._is_draining = False

    def begin_drain(self) -> None:
        """Say not ready from now on."""
        self._is_draining = True

    def live(self) -> Reply:
        """Answer at all: the event loop runs."""
        return Reply(200, b'{"live":true}')

    def ready(self) -> Reply | None:
        """Answer 503 while there is no engine; else it is for the engine to answer."""
        reason = "the server is stopping" if self._is_draining else self._link.missing
        if reason is None:
            return None
        body = {"ready": False, "error": f"not ready: {reason}", "reasons": [reason]}
        return Reply(503, json.dumps(body).encode(), (JSON, _RETRY))


def create_worker_app(
    link: EngineLink,
    settings: Settings,
    metrics: RequestMetrics,
    *,
    engine_socket: Path,
    tracing: Tracing | None = None,
    rates: Rates | None = None,
) -> tuple[Front, WorkerHealth]:
    """Return the ASGI callable of a worker, and what its probes ask."""
    gate = Gate(settings, rates=rates, on_audit_failure=metrics.audit_failures)
    health = WorkerHealth(link)
    predictor = Predictor(link.catalog, metrics, max_instances=settings.max_instances, tracing=tracing)
    catalog = link.catalog

    def is_here(path: VerbPath) -> bool:
        return catalog.serves(path.model, version=path.version, label=path.label)

    forwarder = Forwarder(engine_socket, missing=lambda: link.missing, metrics=metrics)
    return Front(forwarder, predictor, health, settings, metrics, gate, is_here=is_here), health
