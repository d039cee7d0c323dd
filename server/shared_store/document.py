"""What a bucket says of one model: all of it in one object, so that every change is one conditional write.

::

    {"format_version": 1, "last": 7, "deleted": 0,
     "active": 6, "unloaded": false, "history": [{"version": 6, "at": ..., "by": ...}], "labels": {"stable": 5},
     "versions": {"6": {"state": "BUILT", "reason": "", "created_at": ..., "labels": {}, "awaits_switch": false,
                        "intake": {...}, "owner": "<server>", "source": {...}, "spec": "<sha256>", "contents": {...}}}}

Reading it gives the same index that a local store keeps; who writes changes an index and writes it back. Files and
specifications are blobs, which are there before a version is BUILT.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from server.store.activation import MAX_HISTORY, Activation, read_history
from server.store.contents import Contents
from server.store.errors import StoreDamaged
from server.store.index import ModelIndex
from server.store.records import DURABLE_STATES, Intake, State, VersionRecord

__all__ = ["Document", "VersionFacts"]

FORMAT_VERSION = 1


@dataclass(slots=True)
class VersionFacts:
    """What is said of a version beside its record. ``owner`` is the server that builds or built it."""

    owner: str
    #: What it is built from, as far as it is short.
    source: Mapping[str, Any] = field(default_factory=dict)
    #: SHA-256 of the blob with the registration's options; empty until it is BUILT.
    spec: str = ""


@dataclass(slots=True)
class Document:
    """One model: its index, and the facts of each version in it. Changed by whoever is about to write it."""

    index: ModelIndex = field(default_factory=ModelIndex)
    facts: dict[int, VersionFacts] = field(default_factory=dict)

    def activate(self, version: int, *, at: str, by: str) -> None:
        """Let a built version answer; what waited to be switched to, up to it, waits no more."""
        index = self.index
        if index.active != version:
            index.history = [*index.history, Activation(version, at, by)][-MAX_HISTORY:]
            index.active, index.is_unloaded, index.unloaded = version, False, None
        for number, waiting in list(index.versions.items()):
            if waiting.awaits_switch and number <= version:
                index.versions[number] = replace(waiting, awaits_switch=False)

    def to_bytes(self) -> bytes:
        """Return the object."""
        index = self.index
        value = {
            "format_version": FORMAT_VERSION,
            "last": index.last,
            "deleted": index.deleted,
            "active": index.unloaded if index.is_unloaded else index.active,
            "unloaded": index.is_unloaded,
            "history": [activation.to_json() for activation in index.history],
            "labels": dict(index.labels),
            "versions": {
                str(number): {
                    "state": str(record.state),
                    "reason": record.reason,
                    "created_at": record.created_at,
                    "labels": dict(record.labels),
                    "awaits_switch": record.awaits_switch,
                    "intake": record.intake.to_json(),
                    "owner": self.facts[number].owner,
                    "source": dict(self.facts[number].source),
                    "spec": self.facts[number].spec,
                    "contents": None if number not in index.contents else index.contents[number].to_json(),
                }
                for number, record in index.versions.items()
            },
        }
        return json.dumps(value, indent=1).encode()

    @classmethod
    def from_bytes(cls, name: str, data: bytes, *, shown: str) -> Document:
        """Read the object. Errors: StoreDamaged for anything else."""
        try:
            value = json.loads(data)
            if value["format_version"] != FORMAT_VERSION:
                raise ValueError(f"it is of format {value['format_version']!r}, this release reads {FORMAT_VERSION}")
            return _read(name, value)
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise StoreDamaged(shown, f"{error!r:.300}") from error


def _read(name: str, value: Mapping[str, Any]) -> Document:
    document = Document()
    index = document.index
    index.last, index.deleted = int(value["last"]), int(value["deleted"])
    for text, entry in sorted(value["versions"].items(), key=lambda item: int(item[0])):
        number, state = int(text), State(entry["state"])
        if state not in DURABLE_STATES:
            raise ValueError(f"{state} is not a durable state")
        index.versions[number] = VersionRecord(
            model=name,
            version=number,
            state=state,
            reason=str(entry["reason"]),
            created_at=str(entry["created_at"]),
            labels={str(label): str(text) for label, text in entry["labels"].items()},
            awaits_switch=bool(entry["awaits_switch"]),
            intake=Intake.from_json(entry.get("intake", {})),
        )
        if entry["contents"] is not None:
            index.contents[number] = Contents.from_json(entry["contents"])
        document.facts[number] = VersionFacts(str(entry["owner"]), dict(entry["source"]), str(entry["spec"]))
    active = value["active"]
    is_there = active in index.versions and index.versions[active].state is State.BUILT
    index.is_unloaded = bool(value["unloaded"])
    index.active = active if is_there and not index.is_unloaded else None
    index.unloaded = active if is_there and index.is_unloaded else None
    index.history = read_history(value)
    index.labels = {
        str(label): int(version) for label, version in value["labels"].items() if int(version) in index.versions
    }
    return document
