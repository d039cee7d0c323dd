"""A store that a server may have open, as it lies there: read without its lock, and without changing anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server.store.contents import Contents, digest_tree
from server.store.durable import Disk, read_json
from server.store.errors import NotAStore, StoreDamaged
from server.store.format import check_format
from server.store.index import StoreIndex
from server.store.layout import Layout, VersionLayout
from server.store.records import State, VersionRecord
from server.store.recovery import recover

__all__ = ["StoreView", "VersionCheck"]

_PIECE_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class VersionCheck:
    """What was found of one version. ``contents`` None: a release without checksums built it, or it isn't built."""

    record: VersionRecord
    contents: Contents | None
    faults: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "model": self.record.model,
            "version": self.record.version,
            "state": str(self.record.state),
            "active": self.record.active,
            "labels": sorted(self.record.labels),
            "created_at": self.record.created_at,
            "bytes": None if self.contents is None else self.contents.n_bytes,
            "files": None if self.contents is None else len(self.contents.files),
            "sha256": None if self.contents is None else self.contents.sha256,
            "faults": list(self.faults),
        }


class StoreView(StoreIndex):
    """Models and versions as they were when it was made. ``damage``: a sentence for each thing that was found broken.

    Errors: NotAStore; StoreDamaged; StoreUnwritable where a directory can't be listed.
    """

    def __init__(self, root: Path) -> None:
        self._layout = Layout(root.absolute())
        if not self._layout.format.is_file():
            raise NotAStore(f"{str(root)!r} is no store: it has no {self._layout.format.name}")
        check_format(self._layout)
        recovered = recover(self._layout, _Untouched())
        super().__init__(recovered.models)
        self.damage = tuple(recovered.damage)

    def look_again(self) -> set[str]:
        """Read the store as it is now, and return the models that have changed. Errors: as when it was made."""
        now = StoreView(self._layout.root)
        before, self._models = self._models, now._models
        self.damage = now.damage
        return {name for name in before.keys() | self._models.keys() if before.get(name) != self._models.get(name)}

    def artifact_dir(self, name: str, version: int) -> Path:
        """Return the compiled model. Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built."""
        self.contents(name, version)
        return self._paths(name, version).artifact

    def spec(self, name: str, version: int) -> dict[str, Any]:
        """Read the registration's options. Errors: ModelNotFound; VersionNotFound; StoreDamaged."""
        self.record(name, version)
        try:
            return read_json(self._paths(name, version).spec)
        except FileNotFoundError as error:
            raise StoreDamaged(self._paths(name, version).spec, "it is missing") from error

    def files(self, name: str, version: int) -> Contents:
        """Return the files of a built version. Errors: ModelNotFound; VersionNotFound; Conflict if it isn't built."""
        return self.contents(name, version) or digest_tree(self.artifact_dir(name, version))

    def pieces(self, name: str, version: int, path: str) -> Iterator[bytes]:
        """Read one of a version's files. Errors: OSError."""
        with (self._paths(name, version).artifact / path).open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece

    def checks(self, *, read: bool, only: str | None = None) -> list[VersionCheck]:
        """Return what there is of every version, of all models or one; ``read``: compare every byte.

        Errors: ModelNotFound for ``only``.
        """
        found = []
        for name in self.models() if only is None else [only]:
            for record in self.versions(name):
                check = self._check(record, read=read)
                if self._paths(name, record.version).path.is_dir():  # else it was deleted meanwhile
                    found.append(check)
        return found

    def _check(self, record: VersionRecord, *, read: bool) -> VersionCheck:
        if record.state is not State.BUILT:
            # What is told of one that failed may be that its artifact is damaged.
            is_damaged = any(sentence == record.reason for sentence in self.damage)
            return VersionCheck(record, None, (record.reason,) if is_damaged else ())
        contents = self.contents(record.model, record.version)
        if contents is None or not read:
            return VersionCheck(record, contents, ())
        artifact = self._paths(record.model, record.version).artifact
        try:
            return VersionCheck(record, contents, tuple(contents.differences(artifact)))
        except (OSError, StoreDamaged) as error:
            return VersionCheck(record, contents, (str(error),))

    def _paths(self, name: str, version: int) -> VersionLayout:
        return self._layout.version(name, version)


class _Untouched(Disk):
    """Does nothing of what recovery would do."""

    def write_json(self, path: Path, value: Mapping[str, Any]) -> None:
        pass

    def make_directory(self, path: Path) -> None:
        pass

    def discard(self, path: Path) -> None:
        pass

    def sync_tree(self, path: Path) -> None:
        pass
