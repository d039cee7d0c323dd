"""Where everything lies in a store.

::

    <root>/
      format.json            {"format_version": 1}
      lock                   held by the process that has the store open; its process id
      uploads/               archives on their way in; emptied at open
      partial-uploads/       archives that come in pieces, over restarts; made with the first
      trash/                 what is being deleted; emptied at open
      blobs/<sha256>         files of artifacts under a second name, by which versions share them; see blobs.py
      models/<name>/
        numbers.json         {"last": 3}: the highest version number ever given out; outlives the versions
        active.json          {"version": 2, "history": [...]}: which version answers, and which did before; absent where
                             none ever did, and "unloaded": true in it where it was withdrawn
        labels.json          {"stable": 2}: labels that lead to a version, whatever was registered
        <version>/
          record.json        state, reason, when
          spec.json          the registration's options, as they came
          contents.json      the artifact's files with sizes and SHA-256; absent where a release before it built it
          source/            what it is built from; gone once it is built or failed
            source.json      what was registered; with it here the build can be done again
            archive          the upload, where it was one
          staging/           what the builder writes; becomes artifact/ by one rename
          artifact/          the compiled model; there exactly if the build was committed
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from server.spec import MODEL_NAME
from server.store.errors import InvalidName

__all__ = ["STORE_FORMAT", "Layout", "VersionLayout", "check_name"]

STORE_FORMAT = 1

_VERSION_NAME = re.compile(r"[1-9][0-9]{0,17}")


def check_name(name: str) -> str:
    """Return a model's name if it may be used, so that no path that is made of it can climb. Errors: InvalidName."""
    if MODEL_NAME.fullmatch(name) is None:
        raise InvalidName(name)
    return name


def version_number(directory: str) -> int | None:
    """Return the version whose directory has that name, None if it is no version's."""
    return int(directory) if _VERSION_NAME.fullmatch(directory) else None


@dataclass(frozen=True, slots=True)
class VersionLayout:
    """The paths of one version."""

    path: Path

    @property
    def record(self) -> Path:
        return self.path / "record.json"

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    @property
    def contents(self) -> Path:
        return self.path / "contents.json"

    @property
    def source(self) -> Path:
        return self.path / "source"

    @property
    def source_record(self) -> Path:
        return self.source / "source.json"

    @property
    def archive(self) -> Path:
        return self.source / "archive"

    @property
    def staging(self) -> Path:
        return self.path / "staging"

    @property
    def artifact(self) -> Path:
        return self.path / "artifact"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one store. Names are checked, so that every path is inside of ``root``."""

    root: Path

    @property
    def format(self) -> Path:
        return self.root / "format.json"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def uploads(self) -> Path:
        return self.root / "uploads"

    @property
    def partial_uploads(self) -> Path:
        return self.root / "partial-uploads"

    @property
    def trash(self) -> Path:
        return self.root / "trash"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def models(self) -> Path:
        return self.root / "models"

    def model(self, name: str) -> Path:
        """Return the directory of a model. Errors: InvalidName."""
        return self.models / check_name(name)

    def numbers(self, name: str) -> Path:
        """Return the file of the highest version number given out. Errors: InvalidName."""
        return self.model(name) / "numbers.json"

    def active(self, name: str) -> Path:
        """Return the file that names the active version. Errors: InvalidName."""
        return self.model(name) / "active.json"

    def labels(self, name: str) -> Path:
        """Return the file of the labels that were set. Errors: InvalidName."""
        return self.model(name) / "labels.json"

    def version(self, name: str, version: int) -> VersionLayout:
        """Return the paths of a version. Errors: InvalidName; ValueError for a number that no version has."""
        if version < 1:
            raise ValueError(f"version numbers start at 1, got {version}")
        return VersionLayout(self.model(name) / str(version))
