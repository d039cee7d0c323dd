"""What the server says of one version of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rowwise.errors import BadAnswer

__all__ = ["Stage", "VersionStatus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How far a stage of a registration is: ``done`` of ``total`` steps; a total of 0 is unknown."""

    name: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStatus:
    """One version of a model, as the server reports it.

    ``state`` is BUILDING, BUILT, LOADING, AVAILABLE, UNLOADING, UNLOADED or FAILED; ``reason`` says why it
    failed, else it is empty; ``active`` is True for the version that unversioned requests get.
    """

    model: str
    version: int
    state: str
    reason: str = ""
    active: bool = False
    created_at: str = ""
    stage: Stage | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> VersionStatus:
        """Read one entry of the server's answer. Errors: BadAnswer."""
        try:
            progress = value.get("progress")
            return cls(
                model=str(value["model"]),
                version=int(value["version"]),
                state=str(value["state"]).upper(),
                reason=str(value.get("reason") or ""),
                active=bool(value.get("active", False)),
                created_at=str(value.get("created_at") or ""),
                stage=_stage(progress) if progress else None,
                labels=dict(value.get("labels") or {}),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadAnswer(f"the server's answer is no status of a model version: {error!r} in {value!r}") from error

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "model": self.model,
            "version": self.version,
            "state": self.state,
            "reason": self.reason,
            "active": self.active,
            "created_at": self.created_at,
            "labels": dict(self.labels),
        }


def _stage(progress: Mapping[str, Any]) -> Stage:
    return Stage(
        name=str(progress["stage"]), done=int(progress.get("done") or 0), total=int(progress.get("total") or 0)
    )
