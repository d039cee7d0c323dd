"""Another server's store, as it lies there: read, followed and never changed, by any number of servers at once.

Nothing is copied and nothing is locked. One server has the store open and changes it; the others read it again and
again, from where it lies: a directory on the same machine, or one that several machines have mounted. What is changed
there at one moment (see ``store``) is seen here at one moment.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

from server.store.closing import Closing
from server.store.durable import read_json
from server.store.errors import StoreDamaged, StoreError, StoreUnwritable
from server.store.looking import StoreView
from server.store.quotas import Quotas
from server.store.records import NO_INTAKE, Intake, VersionRecord

__all__ = ["FollowedStore"]

_log = logging.getLogger(__name__)


class FollowedStore(StoreView, Closing):
    """A store that others change. Errors: whatever would change it raises StoreUnwritable."""

    def __init__(self, root: Path, *, quotas: Quotas | None = None) -> None:
        super().__init__(root)
        self.quotas = quotas or Quotas()
        #: Why it can't be read any more; empty while it can.
        self.trouble = ""
        #: For what a server needs a directory for that it can write to.
        self._own = tempfile.TemporaryDirectory(prefix="rowwise-follower-")

    def close(self) -> None:
        """Give the server's own directory back."""
        self._own.cleanup()

    # Following.

    def refresh(self) -> set[str]:
        """Read the store again, and return the models that have changed. ``trouble`` says if it can't be read."""
        try:
            changed = self.look_again()
        except (StoreError, OSError) as error:
            if not self.trouble:
                _log.warning("%s: what is loaded goes on serving", error)
            self.trouble = str(error)
            return set()
        if self.trouble:
            _log.info("the store can be read again")
        self.trouble = ""
        return changed

    # What there is, besides what the index says.

    @property
    def is_read_only(self) -> bool:
        """True."""
        return True

    def is_mine(self, name: str, version: int) -> bool:  # noqa: ARG002 - none is
        """Return False: whoever has the store builds."""
        return False

    def status(self) -> dict[str, Any]:
        """Return where it is and what it holds, as plain JSON types."""
        return {
            "directory": str(self._layout.root),
            "is_read_only": True,
            "is_followed": True,
            "models": len(self.models()),
            "damage": len(self.damage),
            "trouble": self.trouble,
        }

    def source(self, name: str, version: int) -> dict[str, Any]:
        """Read what a version is built from. Errors: ModelNotFound; VersionNotFound; StoreDamaged."""
        path = self._paths(name, version).source_record
        try:
            return read_json(path)
        except FileNotFoundError as error:
            raise StoreDamaged(path, "it is missing") from error

    def collectable(self, name: str, *, keep: int, in_use: Collection[int] = ()) -> list[int]:  # noqa: ARG002
        """Return nothing: whoever has the store clears it up."""
        return []

    def fetch(self, name: str, version: int) -> None:
        """Do nothing: what is built is there."""

    # Where things are.

    def upload_dir(self) -> Path:
        """Return a directory of this server's own."""
        return Path(self._own.name)

    def partial_upload_dir(self) -> Path:
        """Return a directory of this server's own, which holds nothing."""
        return Path(self._own.name) / "partial"

    def source_dir(self, name: str, version: int) -> Path:
        """Return what a version is built from, there."""
        return self._paths(name, version).source

    def staging_dir(self, name: str, version: int) -> Path:
        """Return where the builder writes, there."""
        return self._paths(name, version).staging

    def archive(self, name: str, version: int) -> Path:
        """Return where a version's upload is, there."""
        return self._paths(name, version).archive

    # What would change it.

    def check_new(self, name: str, *, n_bytes: int) -> None:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def create_version(
        self,
        name: str,  # noqa: ARG002
        spec: Mapping[str, Any],  # noqa: ARG002
        *,
        source: Mapping[str, Any] | None = None,  # noqa: ARG002
        archive: Path | None = None,  # noqa: ARG002
        intake: Intake = NO_INTAKE,  # noqa: ARG002
    ) -> VersionRecord:
        """Refuse."""
        self._refuse()

    def commit(self, name: str, version: int) -> VersionRecord:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def fail(self, name: str, version: int, reason: str) -> VersionRecord:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def interrupt(self, name: str, version: int) -> None:
        """Do nothing: nothing is built here."""

    def record_contents(self, name: str, version: int) -> None:
        """Do nothing: whoever has the store takes them up."""

    def activate(self, name: str, version: int, *, by: str = "", newest: bool = False) -> VersionRecord:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def deactivate(self, name: str, *, by: str = "") -> None:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def set_label(self, name: str, label: str, version: int) -> None:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def remove_label(self, name: str, label: str) -> None:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def delete(self, name: str, version: int | None = None) -> None:  # noqa: ARG002
        """Refuse."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StoreUnwritable(
            f"store {str(self._layout.root)!r} is another server's, which this one follows: change it there"
        )
