"""What of a shared store lies in this server's own directory alone: uploads, sources, builds under way."""

from __future__ import annotations

from pathlib import Path

from server.store import Store

__all__ = ["InDirectory"]


class InDirectory:
    """Places in ``_here``, the local store."""

    _here: Store

    @property
    def is_read_only(self) -> bool:
        """True where the directory can't be written."""
        return self._here.is_read_only

    def upload_dir(self) -> Path:
        """Return the directory for archives on their way in."""
        return self._here.upload_dir()

    def partial_upload_dir(self) -> Path:
        """Return the directory for uploads that may be gone on with after a restart."""
        return self._here.partial_upload_dir()

    def source_dir(self, name: str, version: int) -> Path:
        """Return what a version is built from, here."""
        return self._here.source_dir(name, version)

    def staging_dir(self, name: str, version: int) -> Path:
        """Return where the builder writes, here."""
        return self._here.staging_dir(name, version)

    def archive(self, name: str, version: int) -> Path:
        """Return where a version's upload is, here."""
        return self._here.archive(name, version)
