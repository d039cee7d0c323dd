"""What is known of one version of a model: the value that store, catalog and web pass around."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["DURABLE_STATES", "NO_INTAKE", "Intake", "State", "VersionRecord"]


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
class Intake:
    """How a version was handed in, which is kept with it when its source is gone.

    ``archive_sha256`` is of an upload, in hexadecimal. ``key`` and ``content`` are hashes of the caller's idempotency
    key and of all that was registered under it, empty without a key.
    """

    archive_sha256: str = ""
    key: str = ""
    content: str = ""

    def to_json(self) -> dict[str, str]:
        """Return what there is."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Intake:
        """Build from ``to_json``'s result; what a later release says besides is left out."""
        return cls(**{name: str(value[name]) for name in ("archive_sha256", "key", "content") if name in value})


NO_INTAKE = Intake()


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
    ``intake``: how it was handed in.
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
    intake: Intake = NO_INTAKE

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
            "archive_sha256": self.intake.archive_sha256 or None,
            "shadow": None if self.shadow is None else dict(self.shadow),
            "invariant": None if self.invariant is None else dict(self.invariant),
        }
