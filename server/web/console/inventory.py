"""What there is, as each viewer may see it: told again only when it has changed."""

from __future__ import annotations

from typing import Any

import orjson

from server.rights import Grant
from server.web.console.snapshot import view_of
from server.web.interfaces import Catalog

__all__ = ["Inventory"]


class Inventory:
    """Every version of every model, and whether the server is ready, as they were when it was looked last."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._models: list[dict[str, Any]] = []
        self._state: dict[str, Any] = {}
        self._texts: dict[Grant | None, bytes] = {}
        #: How often it was found changed.
        self.revision = 0

    def look(self) -> None:
        """See what there is now."""
        models = [record.to_json() for record in self._catalog.models()]
        reasons = self._catalog.readiness()
        state = {"ready": not reasons, "reasons": reasons, "notes": self._catalog.notes()}
        if models != self._models or state != self._state:
            self._models, self._state = models, state
            self._texts.clear()
            self.revision += 1

    def text(self, grant: Grant) -> bytes:
        """Return JSON of what a grant covers. Reasons and notes may name any model: only who may see all gets them."""
        view = view_of(grant)
        found = self._texts.get(view)
        if found is None:
            if view is None:
                told = {**self._state, "models": self._models}
            else:
                told = {
                    "ready": self._state.get("ready", False),
                    "reasons": [],
                    "notes": [],
                    "models": [record for record in self._models if view.covers(record["model"])],
                }
            found = self._texts[view] = orjson.dumps(told)
        return found
