"""Which version of a model answers, and which ones labels lead to: the client's part on them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from rowwise._http import Connection, model_path
from rowwise.errors import BadAnswer
from rowwise.version_status import VersionStatus

__all__ = ["Pointing"]


class Pointing:
    """A client's methods. ``_signatures`` are those that it remembers, by model and version."""

    _connection: Connection
    _signatures: dict[tuple[str, int | None], Any]

    def activate(self, name: str, version: int) -> None:
        """Make ``version`` the one that unversioned requests get: switch, or roll back."""
        self._connection.send("POST", model_path(name, version, ":activate"))
        self._signatures.pop((name, None), None)

    def rollback(self, name: str) -> VersionStatus:
        """Make the version the active one that was before the active one; return it."""
        answer = self._connection.send_json("POST", model_path(name, None, ":rollback"))
        self._signatures.pop((name, None), None)
        return VersionStatus.from_json(answer)

    def labels(self, name: str) -> dict[str, int]:
        """Return the labels of a model that were set, with the version that each leads to."""
        labels = self._field(name, "labels")
        return {str(label): int(version) for label, version in dict(labels).items()}

    def set_label(self, name: str, label: str, version: int) -> VersionStatus:
        """Let ``label`` lead to ``version``, which is loaded for it; return the version."""
        path = model_path(name, None, f"/labels/{quote(label, safe='')}")
        return VersionStatus.from_json(self._connection.send_json("PUT", path, json={"version": version}))

    def remove_label(self, name: str, label: str) -> None:
        """Remove a label that was set."""
        self._connection.send("DELETE", model_path(name, None, f"/labels/{quote(label, safe='')}"))

    def history(self, name: str) -> list[dict[str, Any]]:
        """Return what was activated, oldest first: ``version`` (None: unloaded), ``at`` and ``by``."""
        return list(self._field(name, "history"))

    def _field(self, name: str, field: str) -> Any:
        answer = self._connection.send_json("GET", model_path(name, None, f"/{field}"))
        if not isinstance(answer, dict) or field not in answer:
            raise BadAnswer(f"the server's answer has no {field!r}: {str(answer)[:200]}")
        return answer[field]
