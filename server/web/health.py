"""Is the process alive, and can it answer."""

from __future__ import annotations

import json
from collections.abc import Callable

from server.web.interfaces import Catalog
from server.web.status import JSON, Reply

__all__ = ["Health"]

_RETRY = (b"retry-after", b"1")


class Health:
    """What probes ask. Open to everybody: they carry no tokens.

    ``names_models`` says whether reasons may name models: not where who asks may not know them.
    """

    def __init__(self, catalog: Catalog, *, names_models: Callable[[], bool]) -> None:
        self._catalog = catalog
        self._names_models = names_models

    def live(self) -> Reply:
        """Answer at all: the event loop runs."""
        return Reply(200, b'{"live":true}')

    def ready(self) -> Reply:
        """Answer 200 if every active model is warm, else 503 with the reasons."""
        reasons = self._catalog.readiness()
        if not reasons:
            notes = self._catalog.notes()
            if notes and not self._names_models():
                notes = ["the server has trouble of which GET /v1/status tells"]
            return Reply(200, json.dumps({"ready": True, "notes": notes}).encode() if notes else b'{"ready":true}')
        if not self._names_models():
            reasons = [f"{len(reasons)} reasons, which are told to those who may read all models (GET /v1/models)"]
        body = {"ready": False, "error": "not ready: " + "; ".join(reasons), "reasons": reasons}
        return Reply(503, json.dumps(body).encode(), (JSON, _RETRY))
