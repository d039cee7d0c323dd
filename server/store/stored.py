"""Finding an artifact in a store that a server may have open: reading what lies there, locking nothing."""

from __future__ import annotations

from pathlib import Path

from server.store.durable import read_json
from server.store.errors import ModelNotFound, NotAStore, VersionNotFound
from server.store.layout import Layout

__all__ = ["stored_artifact"]


def stored_artifact(root: Path, name: str, version: int | None) -> Path:
    """Return the directory of a built version, the active one if ``version`` is None.

    Its files are never changed, but a server may delete the version while it is read.
    Errors: InvalidName; NotAStore; ModelNotFound; VersionNotFound if it is not there, or not built; StoreDamaged.
    """
    layout = Layout(root.absolute())
    if not layout.format.is_file():
        raise NotAStore(f"{str(root)!r} is no store: it has no {layout.format.name}")
    if not layout.model(name).is_dir():
        raise ModelNotFound(name)
    if version is None:
        try:
            version = int(read_json(layout.active(name))["version"])
        except FileNotFoundError:
            raise ModelNotFound(name) from None
    artifact = layout.version(name, version).artifact
    if not artifact.is_dir():
        raise VersionNotFound(name, version)
    return artifact
