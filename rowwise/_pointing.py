"""Which version of a model answers, and which ones labels lead to, as steps."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from rowwise._calls import Calls
from rowwise._http import model_path
from rowwise._steps import Steps
from rowwise.errors import BadAnswer
from rowwise.version_status import VersionStatus

__all__ = ["Pointing"]


class Pointing:
    """Moves what leads to versions, through a client's calls."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def activate(self, name: str, version: int) -> Steps[None]:
        """Make a version the active one."""
        yield from self._calls.tell("POST", model_path(name, version, ":activate"))
        self._calls.forget(name)

    def rollback(self, name: str) -> Steps[VersionStatus]:
        """Make the one active that was before."""
        answer = yield from self._calls.tell("POST", model_path(name, None, ":rollback"))
        self._calls.forget(name)
        return VersionStatus.from_json(answer)

    def unload(self, name: str) -> Steps[None]:
        """Let no version answer."""
        yield from self._calls.tell("POST", model_path(name, None, "/unload", api="v2/repository"))
        self._calls.forget(name)

    def labels(self, name: str) -> Steps[dict[str, int]]:
        """Return where labels lead to."""
        labels = yield from self._field(name, "labels")
        return {str(label): int(version) for label, version in dict(labels).items()}

    def set_label(self, name: str, label: str, version: int) -> Steps[VersionStatus]:
        """Let a label lead to a version."""
        answer = yield from self._calls.tell("PUT", _label_path(name, label), {"version": version})
        return VersionStatus.from_json(answer)

    def remove_label(self, name: str, label: str) -> Steps[None]:
        """Remove a label."""
        yield from self._calls.tell("DELETE", _label_path(name, label))

    def history(self, name: str) -> Steps[list[dict[str, Any]]]:
        """Return what was activated."""
        return list((yield from self._field(name, "history")))

    def _field(self, name: str, field: str) -> Steps[Any]:
        answer = yield from self._calls.ask(model_path(name, None, f"/{field}"))
        if not isinstance(answer, dict) or field not in answer:
            raise BadAnswer(f"the server's answer has no {field!r}: {str(answer)[:200]}")
        return answer[field]


def _label_path(name: str, label: str) -> str:
    return model_path(name, None, f"/labels/{quote(label, safe='')}")
