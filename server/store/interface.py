"""What the server asks of a model store: one in a directory (``Store``), or one that several servers share.

Questions are answered from memory, at any time. What changes something, fetches or looks again takes time: call it from
a thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from server.store.activation import Activation
from server.store.contents import Contents
from server.store.quotas import Quotas
from server.store.records import NO_INTAKE, Intake, VersionRecord

__all__ = ["ModelStore"]


class ModelStore(Protocol):
    """Models with their versions. Errors: those of ``Store``, and StoreUnwritable wherever a change can't be made."""

    #: Replaced as a whole.
    quotas: Quotas

    # What there is.

    def models(self) -> list[str]:
        """Return the names of models that have a version, sorted."""

    def versions(self, name: str) -> list[VersionRecord]:
        """Return a model's versions, oldest first."""

    def record(self, name: str, version: int) -> VersionRecord:
        """Return one version."""

    def active(self, name: str) -> int | None:
        """Return the version that answers where a request names none."""

    def check_active(self, name: str, version: int) -> None:
        """Errors: Superseded where another version answers by now, or none."""

    def is_unloaded(self, name: str) -> bool:
        """Return whether no version answers because the model was unloaded."""

    def loadable(self, name: str) -> int | None:
        """Return the version that loading the model means."""

    def labels(self, name: str) -> dict[str, int]:
        """Return the labels that were set, with the version that each leads to."""

    def history(self, name: str) -> list[Activation]:
        """Return what was activated, oldest first."""

    def previous(self, name: str) -> int:
        """Return the version that rolling back leads to."""

    def contents(self, name: str, version: int) -> Contents | None:
        """Return the files of a built version; None where they were not recorded."""

    def collectable(self, name: str, *, keep: int, in_use: Collection[int] = ()) -> list[int]:
        """Return the versions that may go by themselves, oldest first."""

    def spec(self, name: str, version: int) -> dict[str, Any]:
        """Read the registration's options. The version is being built here, or was fetched."""

    def source(self, name: str, version: int) -> dict[str, Any]:
        """Read what a version is built from."""

    @property
    def is_read_only(self) -> bool:
        """True where nothing can be changed."""

    def status(self) -> dict[str, Any]:
        """Return what operators want to know of the store itself, as plain JSON types."""

    # Where things are.

    def upload_dir(self) -> Path:
        """Return the directory for archives on their way in."""

    def partial_upload_dir(self) -> Path:
        """Return the directory for uploads that may be gone on with after a restart."""

    def source_dir(self, name: str, version: int) -> Path:
        """Return what a version is built from."""

    def staging_dir(self, name: str, version: int) -> Path:
        """Return where the builder writes."""

    def archive(self, name: str, version: int) -> Path:
        """Return where a version's upload is."""

    def artifact_dir(self, name: str, version: int) -> Path:
        """Return where the compiled model is, once it was fetched."""

    def is_mine(self, name: str, version: int) -> bool:
        """Return whether it is for this server to build a version, and to let it serve when it is built."""

    def check_new(self, name: str, *, n_bytes: int) -> None:
        """Raise what ``create_version`` would for an archive of so many bytes, as far as that is known before."""

    # What takes time.

    def create_version(
        self,
        name: str,
        spec: Mapping[str, Any],
        *,
        source: Mapping[str, Any] | None = None,
        archive: Path | None = None,
        intake: Intake = NO_INTAKE,
    ) -> VersionRecord:
        """Add a version in state BUILDING, for this server to build."""

    def commit(self, name: str, version: int) -> VersionRecord:
        """Turn what the builder wrote into the artifact."""

    def fail(self, name: str, version: int, reason: str) -> VersionRecord:
        """Say why a version was not built."""

    def interrupt(self, name: str, version: int) -> None:
        """Note that a build is stopped in good order."""

    def fetch(self, name: str, version: int) -> None:
        """See to it that a built version's artifact and options are here."""

    def record_contents(self, name: str, version: int) -> None:
        """Take up the files of an artifact of which they were not recorded."""

    def activate(self, name: str, version: int, *, by: str = "", newest: bool = False) -> VersionRecord:
        """Make a built version the one that answers. ``newest``: if no newer one does (Superseded)."""

    def deactivate(self, name: str, *, by: str = "") -> None:
        """Let no version of the model answer, until one is activated."""

    def set_label(self, name: str, label: str, version: int) -> None:
        """Let a label lead to a built version."""

    def remove_label(self, name: str, label: str) -> None:
        """Remove a label that was set."""

    def delete(self, name: str, version: int | None = None) -> None:
        """Delete one version, or the model."""
