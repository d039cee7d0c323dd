"""Is the process alive, and can it answer."""

from __future__ import annotations

import json

from server.web.interfaces import Catalog
from server.web.status import JSON, Reply

__all__ = ["Health"]

_RETRY = (b"retry-after", b"1")


class Health:
    """What probes ask. Open to everybody: they carry no tokens."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def live(self) -> Reply:
        """Answer at all: the event loop runs."""
        return Reply(200, b'{"live":true}')

    def ready(self) -> Reply:
        """Answer 200 if every active model is warm, else 503 with the reasons."""
        reasons = self._catalog.readiness()
        if not reasons:
            return Reply(200, b'{"ready":true}')
        body = {"ready": False, "error": "not ready: " + "; ".join(reasons), "reasons": reasons}
        return Reply(503, json.dumps(body).encode(), (JSON, _RETRY))
