"""Which version of a model answers, and which did before: what ``active.json`` says, replaced as a whole.

The history is a list of what was activated, oldest first, with who did it and when. Rolling back goes by it as by a
stack: activating a version that is in it already takes away what came after, so that two rollbacks go back two versions
and never forward again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["MAX_HISTORY", "Activation", "read_history", "rollback_target"]

#: Activations that are remembered of a model: some kilobytes, read at start and written at each.
MAX_HISTORY = 100
_MAX_BY_CHARS = 200


@dataclass(frozen=True, slots=True)
class Activation:
    """One change of what answers. ``version`` None: from then on none did. ``at`` is UTC; ``by`` who asked for it."""

    version: int | None
    at: str
    by: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"version": self.version, "at": self.at, "by": self.by[:_MAX_BY_CHARS]}


def read_history(document: Mapping[str, Any]) -> list[Activation]:
    """Return the history in ``active.json``; what can't be read of it is left out: nothing depends on it."""
    entries = document.get("history")
    read = []
    for entry in entries if isinstance(entries, list) else ():
        version, at, by = (entry.get(key) for key in ("version", "at", "by")) if isinstance(entry, dict) else (0, 0, 0)
        if (version is None or (type(version) is int and version > 0)) and isinstance(at, str) and isinstance(by, str):
            read.append(Activation(version, at, by))
    return read[-MAX_HISTORY:]


def rollback_target(history: Collection[Activation], active: int | None, there: Collection[int]) -> int | None:
    """Return the version that answered before the active one, of those that are still there; None if none did.

    Where none is active, that is the one that was last.
    """
    stack: list[int] = []
    for activation in history:
        if activation.version in stack:
            del stack[stack.index(activation.version) + 1 :]
        elif activation.version is not None and (activation.version in there or activation.version == active):
            stack.append(activation.version)
    if active in stack:
        del stack[stack.index(active) :]
    return stack[-1] if stack else None
