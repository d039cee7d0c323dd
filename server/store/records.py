"""What is known of one version of a model: the value that store, catalog and web pass around."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["DURABLE_STATES", "State", "VersionRecord"]


class State(StrEnum):
    """Where a version is in its life. The disk knows the first three; the catalog adds the others while serving.

    ::

        BUILDING ── BUILT ── LOADING ── AVAILABLE ── UNLOADING ── UNLOADED
            └── FAILED ─────────┘
    """

    BUILDING = "BUILDING"
    BUILT = "BUILT"
    FAILED = "FAILED"
    LOADING = "LOADING"
    AVAILABLE = "AVAILABLE"
    UNLOADING = "UNLOADING"
    UNLOADED = "UNLOADED"


#: The states that survive a restart.
DURABLE_STATES = frozenset({State.BUILDING, State.BUILT, State.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """One version of a model, as it was at one moment.

    ``reason`` is a sentence where the state needs one (FAILED above all), else empty. ``created_at`` is UTC in
    ISO 8601 with seconds. ``active``: the version that answers where a request names none. ``progress`` is the
    builder's latest ``{"stage", "done", "total"}`` while BUILDING. ``labels`` are the registration's own.
    ``attempts``: how often a build of it was begun that neither ended nor was stopped in good order.
    ``awaits_switch``: it has not answered yet, and is to as soon as it is built.
    ``shadow``: of one that runs as a shadow, how its answers compare with the serving version's.
    ``invariant``: of one that serves in invariant mode, the buckets ``(rows, *lengths)`` that do, by entry point.
    """

    model: str
    version: int
    state: State
    reason: str = ""
    created_at: str = ""
    active: bool = False
    progress: Mapping[str, Any] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 0
    awaits_switch: bool = False
    invariant: Mapping[str, Any] | None = None
    shadow: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "model": self.model,
            "version": self.version,
            "state": str(self.state),
            "reason": self.reason,
            "created_at": self.created_at,
            "active": self.active,
            "progress": None if self.progress is None else dict(self.progress),
            "labels": dict(self.labels),
            "shadow": None if self.shadow is None else dict(self.shadow),
            "invariant": None if self.invariant is None else dict(self.invariant),
        }
