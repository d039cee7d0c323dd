"""What is known of a version beyond the store: how it serves, how far its build is, who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from server.store import State, VersionRecord

__all__ = ["Life", "as_lived", "is_unloaded", "why_not"]


@dataclass(slots=True)
class Life:
    """One version since the server was started. Written by the catalog."""

    state: State
    #: Why it is in that state, where it takes saying.
    reason: str = ""
    #: How far its build is, None when none runs.
    progress: Mapping[str, Any] | None = None
    #: In invariant mode, the buckets that serve, by entry point; written by switches.
    invariant: Mapping[str, Any] | None = None
    #: Set when the version has come to rest: available, failed, or gone.
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    #: Its build, as long as it is not done.
    task: asyncio.Task[None] | None = None
    #: True while it is being deleted: who waits for it is told when it is gone.
    is_leaving: bool = False


def as_lived(record: VersionRecord, life: Life | None) -> VersionRecord:
    """Return what the store knows of a version with what has become of it since."""
    if life is None:
        return replace(record, state=State.UNLOADED) if record.state is State.BUILT else record
    return replace(
        record,
        state=life.state,
        reason=life.reason or record.reason,
        progress=life.progress,
        invariant=life.invariant if life.state is State.AVAILABLE else None,
    )


def is_unloaded(record: VersionRecord) -> bool:
    """Return True for a version that serves no more, or has not yet, without anybody being about to change it."""
    at_rest = {State.UNLOADING, State.UNLOADED, State.BUILT}
    # One that another server has activated is about to be loaded.
    return record.state in at_rest and not record.awaits_switch and not record.active


def why_not(record: VersionRecord) -> str:
    """Return why a version that was asked for does not answer; completes a sentence."""
    match record.state:
        case State.BUILDING:
            return record.reason or "it is being built"
        case State.LOADING:
            return "it is being loaded"
        case State.FAILED:
            return f"its build failed: {record.reason}"
        case State.UNLOADING | State.UNLOADED | State.BUILT if record.active:
            return "it is active, and to be loaded" + (f" ({record.reason})" if record.reason else "")
        case State.UNLOADING | State.UNLOADED | State.BUILT:
            return f"version {record.version} is not loaded; activate it" + (
                f" ({record.reason})" if record.reason else ""
            )
        case State.AVAILABLE:
            return "it is being switched; try again"
