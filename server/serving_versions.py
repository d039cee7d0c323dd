"""What the catalog tells other processes of the versions that serve, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from server.serving import ServedModel
from server.store import VersionRecord

__all__ = ["Announce", "ServingVersion", "labels_leading_to", "nobody_to_tell"]

#: Called after what serves has changed. Returns when nobody asks for what served before any more.
Announce = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ServingVersion:
    """A version that serves, and the labels by which a request gets it."""

    model: ServedModel
    labels: Sequence[str]

    @property
    def default_timeout_s(self) -> float:
        """The deadline of a request that names none."""
        return self.model.default_timeout_s


def labels_leading_to(version: int, versions: Iterable[VersionRecord]) -> list[str]:
    """Return the labels whose newest version is this one."""
    newest = {label: record.version for record in sorted(versions, key=_version) for label in record.labels}
    return sorted(label for label, found in newest.items() if found == version)


def _version(record: VersionRecord) -> int:
    return record.version


async def nobody_to_tell() -> None:
    """Stand for ``announce`` where requests are answered in this process alone: a switch is one assignment."""
