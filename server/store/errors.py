"""What the model store refuses, and what it finds broken.

::

    RowwiseError
    └── StoreError
        ├── ImportRefused     a file that is to become a version is not what it says
        ├── InvalidName       the model's name could not be a directory, a path segment and a label
        ├── InvalidLabel      the label could not be a path segment, or there are too many
        ├── QuotaExceeded     it would have more versions or bytes than the server's settings allow
        ├── ModelNotFound     no version of that model
        ├── VersionNotFound   the model exists, that version doesn't
        ├── ModelNotReady     it exists and can't be asked yet (building, loading) or any more (failed)
        │   └── VersionNotLoaded   ... and nothing is under way that would change it
        ├── Conflict          the version's state forbids it
        │   └── Superseded        a newer version answers already
        ├── NotAStore         the directory holds something else
        ├── StoreLocked       another process has the store open
        ├── StoreUnwritable   the disk refused: read-only, no permission, gone
        │   ├── StoreFull     ... because there is no space left
        │   └── StoreUnreachable  ... because it is a bucket that does not answer
        └── StoreDamaged      what is on disk isn't what was written
"""

from __future__ import annotations

import errno
from pathlib import Path

from server.errors import RowwiseError

__all__ = [
    "Conflict",
    "ImportRefused",
    "InvalidLabel",
    "InvalidName",
    "ModelNotFound",
    "ModelNotReady",
    "NotAStore",
    "QuotaExceeded",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreUnreachable",
    "StoreUnwritable",
    "Superseded",
    "VersionNotFound",
    "VersionNotLoaded",
    "unwritable",
]

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class StoreError(RowwiseError):
    """Anything that the model store raises on purpose."""


class ImportRefused(StoreError):
    """A file that is to become a version is not what it says, or not of this kind. The sentence says what is wrong."""


class InvalidName(StoreError):
    """The model's name is not one that may be used."""

    def __init__(self, name: str) -> None:
        shown = name if len(name) <= 120 else name[:117] + "..."
        super().__init__(
            f"model name {shown!r} is not allowed: use 1 to 100 letters, digits, '_', '-' and '.', not starting "
            "with '-' or '.'"
        )
        self.name = name


class InvalidLabel(StoreError):
    """The label is not one that may be set."""

    def __init__(self, label: str, *, limit: int | None = None) -> None:
        shown = label if len(label) <= 120 else label[:117] + "..."
        if limit is not None:
            super().__init__(f"label {shown!r} would be one more than the {limit} of a model: remove another")
        else:
            super().__init__(
                f"label {shown!r} is not allowed: use 1 to 100 letters, digits, '_', '-' and '.', not starting with "
                "'-' or '.'"
            )
        self.label = label


class QuotaExceeded(StoreError):
    """More versions or bytes than the settings allow. The sentence names the setting."""


class ModelNotFound(StoreError):
    """There is no version of that model."""

    def __init__(self, model: str) -> None:
        super().__init__(f"model {model!r} is unknown: register it first")
        self.model = model


class VersionNotFound(StoreError):
    """The model is known, that version of it is not."""

    def __init__(self, model: str, version: int) -> None:
        super().__init__(f"model {model!r} has no version {version}")
        self.model = model
        self.version = version


class ModelNotReady(StoreError):
    """The model, or one version of it, can't answer now. ``reason`` says why and completes the sentence."""

    def __init__(self, model: str, version: int | None, reason: str) -> None:
        which = f"model {model!r}" if version is None else f"version {version} of model {model!r}"
        super().__init__(f"{which} is not ready: {reason}")
        self.model = model
        self.version = version
        self.reason = reason


class VersionNotLoaded(ModelNotReady):
    """The version is built and not loaded, and stays so until somebody activates it: asking again does not help."""


class Conflict(StoreError):
    """The state of a version forbids what was asked for."""


class Superseded(Conflict):
    """A version that was to answer because it is the newest is that no more."""


class NotAStore(StoreError):
    """The directory is in use for something else, or for a store of another format."""


class StoreLocked(StoreError):
    """Another process has the store open. ``pid`` is 0 where the lock doesn't tell."""

    def __init__(self, root: Path, pid: int) -> None:
        holder = f"process {pid}" if pid else "another process"
        super().__init__(f"store {str(root)!r} is in use by {holder}: stop it, or give this server another --store")
        self.root = root
        self.pid = pid


class StoreUnwritable(StoreError):
    """The disk refused a write. A reopened store shows the state before or after the call that says so."""


class StoreFull(StoreUnwritable):
    """There is no space left on the disk, or none for this user."""


class StoreUnreachable(StoreUnwritable):
    """The bucket does not answer, or refuses. What is here goes on serving; nothing can be changed until it does."""


def unwritable(what: str, error: OSError) -> StoreUnwritable:
    """Return what to raise where the operating system refused a write; ``what`` begins the sentence."""
    reason = error.strerror or str(error)
    if error.errno in _NO_SPACE:
        return StoreFull(f"{what} can't be written ({reason}): free some space")
    return StoreUnwritable(f"{what} can't be written ({reason}): check the store's permissions and disk")


class StoreDamaged(StoreError):
    """What is on disk is not what was written."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{str(path)!r} is damaged: {reason}")
        self.path = path
        self.reason = reason
